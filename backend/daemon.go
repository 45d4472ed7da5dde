// Package backend is the daemon: it opens the accelerators, and wires the packages that own its state: scheduler loops
// (backend/sched), guests (backend/guests), worker processes (backend/workers), the CPU side (backend/cpus) and the
// control socket (backend/api).
//
// Callers: cmd/pegasusd, which passes to New the adapters that admit guests and the implementations of accelerators.
//
// Trust boundary: the daemon trusts the host's kernel, and its own workers within their domain's gate page. It trusts
// nothing that a guest wrote, and never maps it.
//
// Locks, in this order: guests.Registry's of reloads, a gate page's own lock, and cpus.Sampler's of the CPU side;
// guests.Registry's of domains; sched.Accelerator's; those of cpus.Sampler's figures, cpus.Follower, workers.Workers
// and events.Journal. The lock of domains and the later ones are not held across a wait, nor while waiting for a value
// that workers write. A Daemon has no lock.
package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"pegasus/backend/api"
	"pegasus/backend/control"
	"pegasus/backend/cpus"
	"pegasus/backend/events"
	"pegasus/backend/gate"
	"pegasus/backend/guests"
	"pegasus/backend/hardware"
	"pegasus/backend/history"
	"pegasus/backend/sched"
	"pegasus/backend/workers"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// Options configures a Daemon.
type Options struct {
	Config     *configs.Config
	ConfigPath string // empty: built-in defaults, and Reload has nothing to read
	Accept     configs.Options
	RuntimeDir string
	// A private daemon belongs to one user, ends Linger after its last guest, and ends its workers with itself.
	Private bool
	Linger  time.Duration

	Adapter hypervisor.Adapter
	// CPUs is the CPU side of the domains; nil: there is no data on it.
	CPUs hypervisor.CPUs
	// Runs returns a sampler of the CPUs for a timeline; nil: timelines have no CPU lines.
	Runs func() hypervisor.Runs
	// Raiser changes the CPU weights of machines where the CPUs follow the accelerator; nil: no weight is changed.
	Raiser hypervisor.Raiser
	// Machines are the host's virtual machines; nil: there is no data on any.
	Machines hypervisor.Machines
	// DomUs reports whether Machines are Xen's.
	DomUs bool
	// Tuner sets machines' share of the CPUs; nil: their hypervisor does not allow it.
	Tuner hypervisor.Tuner
	// Agent reports whether the agent of a domain's machine has connected since the machine was started, and the
	// agent's build; nil: there is no data on agents.
	Agent    func(domain string) (release string, came bool)
	Hardware hardware.Maker
	// Worker is the command of a worker process.
	Worker []string
	// Workers has the commands for the accelerator types with a program of their own.
	Workers map[string][]string
	// Absent lists in one line the accelerators that could exist and do not, with the reasons; empty: none.
	Absent string

	Log         *slog.Logger
	SetLogLevel func(level string)
	// RuntimeDirGiven is set if the command line has the runtime directory.
	RuntimeDirGiven bool
	// LogLevel is the level of the log that the command line or the environment has; empty: the configuration's holds.
	LogLevel string
}

// Daemon is the running daemon.
type Daemon struct {
	opt          Options
	log          *slog.Logger
	ctx          context.Context // ends when the daemon does
	end          context.CancelFunc
	tasks        sync.WaitGroup
	accelerators []*sched.Accelerator

	guests   *guests.Registry
	workers  *workers.Workers
	history  *history.Recorder
	sampler  *cpus.Sampler
	follower *cpus.Follower
	api      *api.Server
}

// New returns a daemon that Run starts.
func New(opt Options) (*Daemon, error) {
	for _, dir := range []string{"domains", "workers"} {
		if err := os.MkdirAll(filepath.Join(opt.RuntimeDir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("runtime directory: %w", err)
		}
	}
	w := workers.Options{RuntimeDir: opt.RuntimeDir, Private: opt.Private, Command: opt.Worker, Commands: opt.Workers, Log: opt.Log}
	for _, c := range opt.Config.Accelerators {
		w.Types = append(w.Types, c.Type)
	}
	d := &Daemon{opt: opt, log: opt.Log, workers: workers.New(w), history: &history.Recorder{}}
	journal := events.NewJournal(opt.Log)
	d.guests = guests.New(guests.Options{
		Config: opt.Config, ConfigPath: opt.ConfigPath, Accept: opt.Accept, RuntimeDir: opt.RuntimeDir, Private: opt.Private, Linger: opt.Linger,
		Adapter: opt.Adapter, Machines: opt.Machines, DomUs: opt.DomUs, Tuner: opt.Tuner, Agent: opt.Agent, SetLogLevel: opt.SetLogLevel,
		RuntimeDirGiven: opt.RuntimeDirGiven, LogLevel: opt.LogLevel,
		Journal: journal, Workers: d.workers, Log: opt.Log,
	})
	d.sampler = cpus.NewSampler(opt.CPUs, d.guests.CPUDomains(), gate.Now)
	d.follower = cpus.NewFollower(opt.Raiser, d.guests.Followers, gate.Now)
	d.guests.SetCPUs(d.sampler)
	d.api = api.New(api.Options{Config: opt.Config, RuntimeDir: opt.RuntimeDir, Runs: opt.Runs, Guests: d.guests.Requests(), Reload: d.guests.Reload, Journal: journal, History: d.history, Log: d.log})
	return d, nil
}

// Run serves until ctx ends or the daemon is shut down. It calls ready once, when guests can connect.
func (d *Daemon) Run(ctx context.Context, ready func()) error {
	d.ctx, d.end = context.WithCancel(ctx)
	defer d.end()
	d.guests.Start(d.ctx, d.end)
	socket, err := d.open()
	if err != nil {
		d.end()
		d.close()
		return err
	}
	d.serve(socket)
	d.guests.Warn(d.opt.Config)
	ready()
	attrs := []any{"dir", d.opt.RuntimeDir, "accelerators", d.inventory(), "adopted", d.guests.Adopted()}
	if d.opt.Absent != "" {
		attrs = append(attrs, "absent", d.opt.Absent)
	}
	d.log.Info("ready", attrs...)
	d.guests.Ready()
	runtime.GC() // after the first collection the runtime collects every two minutes, though one an hour would do
	<-d.ctx.Done()
	d.close()
	return nil
}

// open prepares the daemon to serve: it opens accelerators, takes over the guests of a previous daemon, and opens
// sockets.
func (d *Daemon) open() ([]net.Listener, error) {
	left, err := d.workers.Survivors()
	if err != nil {
		return nil, err
	}
	if err := d.openAccelerators(left); err != nil {
		return nil, err
	}
	if err := d.guests.Open(d.accelerators, left, d.workers.Confine()); err != nil {
		return nil, err
	}
	return d.api.Listen()
}

// Reload reads the configuration again. If it is invalid the old one stays in force, and the log has the cause.
func (d *Daemon) Reload() { d.guests.Reload(nil) }

// Turns returns, for each accelerator, the number of turns that its scheduler loop has made.
func (d *Daemon) Turns() []uint64 {
	turns := make([]uint64, len(d.accelerators))
	for i, a := range d.accelerators {
		turns[i] = a.Turns()
	}
	return turns
}

// Summary describes the daemon's use in one line.
func (d *Daemon) Summary() string {
	return control.Count(len(d.accelerators), "accelerator") + ", " + control.Count(d.guests.Requests().Status().Guests, "guest process")
}

// serve starts the goroutines beside Run.
func (d *Daemon) serve(listeners []net.Listener) {
	// Each scheduler loop and each arbiter gets one more of the runtime's processors. Other goroutines hold theirs while
	// a busy host keeps their threads from running, and a loop that waits for one decides late, whatever its priority.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+2*len(d.accelerators)))
	for _, a := range d.accelerators {
		d.tasks.Go(func() { a.Run(d.ctx) })
		d.tasks.Go(func() { a.Mend(d.ctx) })
		d.tasks.Go(func() { a.Hardware.Serve(d.ctx) })
	}
	d.tasks.Go(d.guests.Run)
	d.tasks.Go(d.observe)
	d.tasks.Go(func() { d.sampler.Run(d.ctx) })
	d.tasks.Go(func() { d.follower.Run(d.ctx) })
	d.tasks.Go(func() { d.workers.Run(d.ctx) })
	d.tasks.Go(func() {
		if err := d.api.Serve(d.ctx, listeners...); err != nil {
			d.log.Error("serve the API", "err", err)
			d.end()
		}
	})
}

// observe has the domains' objectives judged and passes readings to the history, until the daemon ends.
func (d *Daemon) observe() {
	t := time.NewTicker(history.Interval)
	defer t.Stop()
	for {
		now := time.Now()
		d.history.Add(now, d.guests.Observe(now))
		select {
		case <-t.C:
		case <-d.ctx.Done():
			return
		}
	}
}

// close releases all resources. Workers of the host's daemon continue and wait for the next daemon; a private daemon's
// workers end with it.
func (d *Daemon) close() {
	d.guests.Leave()
	d.tasks.Wait() // first: scheduler loops may expel domains
	d.guests.Wait()
	d.workers.Close(guests.CloseTime)
	d.guests.Save()
	for _, a := range d.accelerators {
		if err := errors.Join(a.Hardware.Close(), a.Bell.Free()); err != nil {
			d.log.Warn("close accelerator", "accelerator", a.Name, "err", err)
		}
	}
	d.log.Info("ended")
}
