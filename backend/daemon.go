// Package backend is the daemon: it admits guests, starts a worker process for each guest process, places domains on
// accelerators, opens and closes their gates as the policy decides, and answers the control socket.
//
// Callers: cmd/pegasusd, which passes to New the adapters that admit guests and the implementations of accelerators.
//
// Trust boundary: the daemon trusts the host's kernel, and its own workers within their domain's gate page. It trusts
// nothing that a guest wrote, and never maps it.
//
// Locks, in this order: Daemon.reloading, a gate page's own lock and cpus.Sampler's lock of the CPU side; Daemon.mu;
// sched.Accelerator's lock; the locks of cpus.Sampler's figures, cpus.Follower and workers.Workers. Daemon.mu and the later ones are
// not held across a wait, nor while waiting for a value that workers write.
package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"pegasus/accel/placement"
	"pegasus/backend/control"
	"pegasus/backend/cpus"
	"pegasus/backend/events"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/backend/meter"
	"pegasus/backend/sched"
	"pegasus/backend/workers"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/policies"
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
}

// Daemon is the running daemon.
type Daemon struct {
	opt     Options
	log     *slog.Logger
	started time.Time
	journal *events.Journal
	ctx     context.Context // ends when the daemon does
	end     context.CancelFunc
	tasks   sync.WaitGroup
	rest    *time.Timer // private daemon: fires after a period without use

	reloading sync.Mutex // held for a whole reload; before mu

	mu           sync.Mutex
	config       *configs.Config
	configError  string // why the last reload was rejected
	accelerators []*accelerator
	queue        *placement.Queue
	domains      map[string]*domain
	machines     map[string]hypervisor.Machine // by domain, as last reported
	guests       map[uint64]*guest             // by worker id
	nextGuest    uint64
	slices       map[int]bool  // device windows in use
	freed        chan struct{} // closed and replaced when room becomes free
	arriving     int           // guests that wait for an answer
	holders      int           // programs that hold domains
	leases       int           // of all domains
	mostDoors    int           // bound on domains for creating undeclared ones
	soonest      time.Time     // lower bound on the next expiry; zero: no lease has a term
	watched      bool          // a client reads the timeline
	adopted      int
	ending       bool
	changed      bool                                    // since the state was last saved
	unsaved      string                                  // why the state could not be saved
	saved        map[string]map[string]policies.Balances // the accounts as last saved
	checks       []control.Check

	workers  *workers.Workers
	sampler  *cpus.Sampler
	follower *cpus.Follower
}

// accelerator is an accelerator and what the daemon's control socket changed and measured of it. The daemon's mu guards
// the fields.
type accelerator struct {
	*sched.Accelerator
	load     meter.Meter        // share of time in which its engines were held
	switched map[string]setting // settings that `pegasus policy` laid over the configuration
}

// New returns a daemon that Run starts.
func New(opt Options) (*Daemon, error) {
	d := &Daemon{
		opt: opt, log: opt.Log, config: opt.Config,
		journal:   events.NewJournal(opt.Log),
		mostDoors: mostDoors(),
		domains:   make(map[string]*domain),
		machines:  make(map[string]hypervisor.Machine),
		guests:    make(map[uint64]*guest),
		slices:    make(map[int]bool),
		freed:     make(chan struct{}),
	}
	w := workers.Options{RuntimeDir: opt.RuntimeDir, Private: opt.Private, Command: opt.Worker, Commands: opt.Workers, Log: opt.Log}
	for _, c := range opt.Config.Accelerators {
		w.Types = append(w.Types, c.Type)
	}
	d.workers = workers.New(w)
	domains := cpuDomains{d}
	d.sampler = cpus.NewSampler(opt.CPUs, domains, gate.Now)
	d.follower = cpus.NewFollower(opt.Raiser, domains.followers, gate.Now)
	for _, dir := range []string{"domains", "workers"} {
		if err := os.MkdirAll(filepath.Join(opt.RuntimeDir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("runtime directory: %w", err)
		}
	}
	return d, nil
}

// Run serves until ctx ends or the daemon is shut down. It calls ready once, when guests can connect.
func (d *Daemon) Run(ctx context.Context, ready func()) error {
	d.ctx, d.end = context.WithCancel(ctx)
	defer d.end()
	d.started = time.Now()
	d.rest = time.AfterFunc(time.Hour, d.endIfIdle)
	d.rest.Stop()
	defer d.rest.Stop()
	control, err := d.open()
	if err != nil {
		d.end()
		d.close()
		return err
	}
	d.serve(control)
	d.warn(d.opt.Config)
	ready()
	said := []any{"dir", d.opt.RuntimeDir, "accelerators", d.inventory(), "adopted", d.adopted}
	if d.opt.Absent != "" {
		said = append(said, "absent", d.opt.Absent)
	}
	d.log.Info("ready", said...)
	d.mu.Lock()
	if c := d.admission(); c.State != "ok" && !d.opt.Private { // a user's own programs take all that the user has
		d.log.Warn("memory is promised twice", "why", c.Detail, "remedy", c.Fix)
	}
	d.restIfIdle()
	d.mu.Unlock()
	runtime.GC() // after the first collection the runtime collects every two minutes, though one an hour would do
	<-d.ctx.Done()
	d.close()
	return nil
}

// open prepares the daemon to serve: it opens accelerators, takes over the guests of a previous daemon, and opens
// sockets.
func (d *Daemon) open() (*control.Listener, error) {
	left, err := d.workers.Survivors()
	if err != nil {
		return nil, err
	}
	if err := d.openAccelerators(left); err != nil {
		return nil, err
	}
	d.checks = d.workers.Confine()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.declare(); err != nil {
		return nil, err
	}
	d.restore()
	d.adopt(left)
	for _, a := range d.accelerators {
		a.SetPassing(d.passing) // from now on: survivors have their own accounts
	}
	if err := d.openDeclared(); err != nil {
		return nil, err
	}
	d.openRestored()
	if err := d.opt.Adapter.Sweep(func(name string) bool { return d.domains[name] != nil && d.domains[name].door != nil }); err != nil {
		d.log.Warn("remove old sockets", "err", err)
	}
	settings := make([]configs.Accelerator, len(d.accelerators))
	for i, a := range d.accelerators {
		settings[i] = a.Settings()
	}
	if d.queue, err = d.lineUp(settings, func(dom *domain) configs.Domain { return dom.settings }); err != nil {
		return nil, err
	}
	d.workers.Resize(d.config.Daemon.WorkerPool)
	return d.openControl()
}

func (d *Daemon) openAccelerators(left []*workers.Survivor) error {
	dir := filepath.Join(d.opt.RuntimeDir, "engines")
	there, _ := os.ReadDir(dir)
	for _, f := range there {
		if !slices.ContainsFunc(d.config.Accelerators, func(c configs.Accelerator) bool { return c.Name == f.Name() }) {
			os.RemoveAll(filepath.Join(dir, f.Name()))
		}
	}
	for _, c := range d.config.Accelerators {
		hw, bell, err := d.openHardware(c, left)
		if err != nil {
			return fmt.Errorf("accelerator %q: %w", c.Name, err)
		}
		profile := hw.Profile()
		if c.Change, c.Context = profile.Change, configs.Size(profile.Context); c.Change > 0 || c.Context > 0 {
			d.log.Info("measured what processes' contexts cost", "accelerator", c.Name, "change", c.Change, "bytes", profile.Context)
		}
		o := sched.Options{Settings: c, Hardware: hw, Bell: bell, Follow: d.follower.Window,
			Expel: func(m *sched.Attachment) { d.tasks.Go(func() { d.expel(m) }) }}
		if d.opt.CPUs != nil {
			o.Sample = d.sampler.Sample
		}
		a, err := sched.New(o)
		if err != nil {
			return errors.Join(fmt.Errorf("accelerator %q: %w", c.Name, err), hw.Close(), bell.Free())
		}
		d.accelerators = append(d.accelerators, &accelerator{Accelerator: a, switched: map[string]setting{}})
	}
	return nil
}

// inventory returns a list of the accelerators, for people.
func (d *Daemon) inventory() string {
	var all []string
	for _, a := range d.accelerators {
		all = append(all, fmt.Sprintf("%s (%s)", a.Name, a.Hardware.Profile().Device))
	}
	return strings.Join(all, ", ")
}

// openHardware takes over the files that a previous daemon's workers still use, or opens the accelerator anew if there
// are none.
func (d *Daemon) openHardware(c configs.Accelerator, left []*workers.Survivor) (hardware.Accelerator, *gate.Bell, error) {
	files, bellFile := workers.Shared(left, c.Name)
	dir := ""
	if !d.opt.Private {
		dir = filepath.Join(d.opt.RuntimeDir, "engines", c.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, err
		}
	}
	hw, err := d.opt.Hardware(c, dir, files)
	if err != nil {
		return nil, nil, err
	}
	if got := hw.Profile().Memory; len(files) > 0 && c.Memory != 0 && got != uint64(c.Memory) {
		d.log.Warn("memory stays what it was while guests from before run", "accelerator", c.Name,
			"memory", configs.Size(got), "configured", c.Memory)
	}
	var bell *gate.Bell
	if bellFile != nil {
		bell, err = gate.OpenBell(bellFile)
	} else {
		bell, err = gate.NewBell()
	}
	if err != nil {
		return nil, nil, errors.Join(err, hw.Close())
	}
	return hw, bell, nil
}

// Reload reads the configuration again. If it is invalid the old one stays in force, and the log has the cause.
func (d *Daemon) Reload() { d.reload(nil) }

// serve starts the goroutines beside Run.
func (d *Daemon) serve(l *control.Listener) {
	for _, a := range d.accelerators {
		d.tasks.Go(func() { a.Run(d.ctx) })
		d.tasks.Go(func() { a.Mend(d.ctx) })
		d.tasks.Go(func() { a.Hardware.Serve(d.ctx) })
	}
	d.tasks.Go(func() { d.sample(d.ctx) })
	d.tasks.Go(func() { d.sampler.Run(d.ctx) })
	d.tasks.Go(func() { d.follower.Run(d.ctx) })
	if d.opt.Machines != nil {
		d.tasks.Go(func() { d.opt.Machines.Watch(d.ctx, d.learn) })
	}
	d.tasks.Go(func() { d.workers.Run(d.ctx) })
	d.tasks.Go(func() {
		if err := control.Serve(d.ctx, l, d, d.log); err != nil {
			d.log.Error("control socket", "err", err)
			d.end()
		}
	})
}

// close releases all resources. Workers of the host's daemon continue and wait for the next daemon; a private daemon's
// workers end with it.
func (d *Daemon) close() {
	d.mu.Lock()
	d.ending = true
	var doors []hypervisor.Door
	for _, dom := range d.domains {
		if dom.door == nil {
			continue
		}
		if d.opt.Private {
			dom.door.Close()
		} else {
			dom.door.Leave()
		}
		doors = append(doors, dom.door)
	}
	d.mu.Unlock()
	for _, door := range doors {
		door.Wait()
	}
	if d.opt.Private {
		d.endGuests()
	}
	d.tasks.Wait()
	if d.opt.Private {
		d.reapGuests()
	}
	d.workers.Close(deathGrace)
	d.mu.Lock()
	d.saveOrWarn()
	d.mu.Unlock()
	for _, a := range d.accelerators {
		if err := errors.Join(a.Hardware.Close(), a.Bell.Free()); err != nil {
			d.log.Warn("close accelerator", "accelerator", a.Name, "err", err)
		}
	}
	d.log.Info("ended")
}

// note adds an event that a domain's guests caused. It limits their rate, so that guests cannot fill the log.
func (dom *domain) note(kind, format string, args ...any) {
	d := dom.reg
	d.journal.NoteLimited(dom.limiter, kind, dom.name, format, args...)
}

// warn logs the warnings of a valid configuration.
func (d *Daemon) warn(c *configs.Config) {
	for _, w := range c.Warnings {
		d.journal.Note("warning", "", "%s", w)
	}
}
