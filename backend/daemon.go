// Package backend is the daemon: it lets guests in, gives each guest process a
// worker process, places domains on accelerators, opens and closes their gates
// as the policy says, and answers the control socket.
//
// cmd/pegasusd wires it: which adapters let guests in and what accelerators are
// made of is handed to New. It trusts the host's kernel, its own workers as far
// as their domain's gate page goes, and nothing that a guest wrote, which it
// never maps.
//
// Locks: Daemon.reloading and a gate page's own lock before Daemon.mu before accelerator.mu. The
// last two are not held across a wait, nor while anything is waited for that workers write.
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
	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/policies"
)

// Options is what a Daemon is made from.
type Options struct {
	Config     *configs.Config
	ConfigPath string // empty: built-in defaults, nothing to reload
	Accept     configs.Options
	RuntimeDir string
	// Private daemons belong to one user, end Linger after the last guest, and
	// take their workers with them.
	Private bool
	Linger  time.Duration

	Adapter hypervisor.Adapter
	// CPUs is the CPU side of the domains; nil: nothing is known of it.
	CPUs hypervisor.CPUs
	// Runs makes what looks at the CPUs for a timeline; nil: timelines have none.
	Runs func() hypervisor.Runs
	// Raiser changes the CPU weights of machines, where the CPUs follow the accelerator;
	// nil: nobody may.
	Raiser hypervisor.Raiser
	// Machines are the host's virtual machines; nil: nothing is known of any.
	Machines hypervisor.Machines
	// DomUs says that Machines are Xen's.
	DomUs bool
	// Tuner sets machines' part of the CPUs; nil: their hypervisor lets nobody.
	Tuner hypervisor.Tuner
	// Agent says whether the agent of a domain's machine has come since the machine was
	// started, and which build it is; nil: that isn't known.
	Agent    func(domain string) (release string, came bool)
	Hardware Maker
	// Worker is the command that becomes a worker process.
	Worker []string
	// Workers are those of types of accelerators that have a program of their own.
	Workers map[string][]string
	// Absent says, in a line, which accelerators there could be and aren't, and why; empty: none.
	Absent string

	Log         *slog.Logger
	SetLogLevel func(level string)
}

// Daemon is the running system.
type Daemon struct {
	opt     Options
	log     *slog.Logger
	started time.Time
	journal *journal
	pools   map[string]*pool // of ready workers, by workersOf
	ctx     context.Context  // ends when the daemon does
	end     context.CancelFunc
	tasks   sync.WaitGroup
	rest    *time.Timer // private: runs when nobody has been here for a while

	reloading sync.Mutex // held for a whole reload; before mu

	mu           sync.Mutex
	config       *configs.Config
	configError  string // why the last reload was refused
	accelerators []*accelerator
	queue        *placement.Queue
	domains      map[string]*domain
	machines     map[string]hypervisor.Machine // by domain, as last heard of
	guests       map[uint64]*guest             // by worker id
	nextGuest    uint64
	slices       map[int]bool  // device windows in use
	uids         map[int]bool  // users in use by domains
	freed        chan struct{} // closed and made anew when room comes free
	arriving     int           // guests that wait for an answer
	holders      int           // programs that hold domains
	leases       int           // of all domains
	mostDoors    int           // bound on domains for creating undeclared ones
	soonest      time.Time     // no lease expires before; zero: no lease has a term
	watched      bool          // somebody reads the timeline
	adopted      int
	ending       bool
	changed      bool                                    // since the state was last saved
	unsaved      string                                  // why it couldn't be
	saved        map[string]map[string]policies.Balances // the accounts as they were saved
	checks       []control.Check
	cgroups      []cgroup

	follower *follower
	eyes     sync.Mutex    // is held by whoever asks Options.CPUs
	settled  chan struct{} // holds something when guests came since their domains were weighed
}

// New makes a daemon; nothing runs yet.
func New(opt Options) (*Daemon, error) {
	d := &Daemon{
		opt: opt, log: opt.Log, config: opt.Config,
		journal:   newJournal(),
		mostDoors: mostDoors(),
		domains:   make(map[string]*domain),
		machines:  make(map[string]hypervisor.Machine),
		guests:    make(map[uint64]*guest),
		slices:    make(map[int]bool),
		uids:      make(map[int]bool),
		freed:     make(chan struct{}),
		settled:   make(chan struct{}, 1),
		follower:  newFollower(),
	}
	for _, dir := range []string{"domains", "workers"} {
		if err := os.MkdirAll(filepath.Join(opt.RuntimeDir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("runtime directory: %w", err)
		}
	}
	return d, nil
}

// Run serves until ctx ends or the daemon is told to end. ready is called once
// when guests can come.
func (d *Daemon) Run(ctx context.Context, ready func()) error {
	d.ctx, d.end = context.WithCancel(ctx)
	defer d.end()
	d.started = time.Now()
	d.makePools()
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
	if c := d.admission(); c.State != "ok" && !d.opt.Private { // a user's own programs take what that user has
		d.log.Warn("memory is promised twice", "why", c.Detail, "remedy", c.Fix)
	}
	d.restIfIdle()
	d.mu.Unlock()
	runtime.GC() // from the first collection on there is one every two minutes; there is garbage for one an hour
	<-d.ctx.Done()
	d.close()
	return nil
}

// open makes everything ready to serve: accelerators, the guests that a daemon
// before left behind, sockets.
func (d *Daemon) open() (*control.Listener, error) {
	left, err := d.survivors()
	if err != nil {
		return nil, err
	}
	if err := d.openAccelerators(left); err != nil {
		return nil, err
	}
	d.checks = d.confinement()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.declare(); err != nil {
		return nil, err
	}
	d.restore()
	d.adopt(left)
	for _, a := range d.accelerators {
		a.passing = d.passing // from now on: survivors have their own accounts
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
		settings[i] = a.current()
	}
	if d.queue, err = d.lineUp(settings, func(dom *domain) configs.Domain { return dom.settings }); err != nil {
		return nil, err
	}
	d.resizePools(d.config.Daemon.WorkerPool)
	return d.openControl()
}

func (d *Daemon) openAccelerators(left []*survivor) error {
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
		a, err := newAccelerator(c, hw, bell, d.log)
		if err != nil {
			return errors.Join(fmt.Errorf("accelerator %q: %w", c.Name, err), hw.Close(), bell.Free())
		}
		a.follower = d.follower
		a.expel = func(m *avcpu) { d.tasks.Go(func() { d.expel(m) }) }
		if d.opt.CPUs != nil {
			a.see = d.see
		}
		d.accelerators = append(d.accelerators, a)
	}
	return nil
}

// inventory names the accelerators that there are.
func (d *Daemon) inventory() string {
	var all []string
	for _, a := range d.accelerators {
		all = append(all, fmt.Sprintf("%s (%s)", a.name, a.hw.Profile().Device))
	}
	return strings.Join(all, ", ")
}

// openHardware takes over what the workers of a daemon before still use, else
// makes it new.
func (d *Daemon) openHardware(c configs.Accelerator, left []*survivor) (Hardware, *gate.Bell, error) {
	files, bellFile := shared(left, c.Name)
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

// Reload reads the configuration again; when it is bad the old one stays, and
// the log says why.
func (d *Daemon) Reload() { d.reload(nil) }

// serve starts what runs beside Run.
func (d *Daemon) serve(l *control.Listener) {
	for _, a := range d.accelerators {
		d.tasks.Go(func() { a.run(d.ctx) })
		d.tasks.Go(func() { a.mend(d.ctx) })
		d.tasks.Go(func() { a.hw.Serve(d.ctx) })
	}
	d.tasks.Go(func() { d.sample(d.ctx) })
	d.tasks.Go(func() { d.coordinate(d.ctx) })
	d.tasks.Go(func() { d.followWindows(d.ctx) })
	if d.opt.Machines != nil {
		d.tasks.Go(func() { d.opt.Machines.Watch(d.ctx, d.learn) })
	}
	for _, g := range d.cgroups {
		d.tasks.Go(g.sweep)
	}
	for _, p := range d.pools {
		d.tasks.Go(func() { p.run(d.ctx) })
	}
	d.tasks.Go(func() {
		if err := control.Serve(d.ctx, l, d, d.log); err != nil {
			d.log.Error("control socket", "err", err)
			d.end()
		}
	})
}

// close lets go of everything. Workers of the host's daemon go on and wait for
// the next one; a private daemon's end with it.
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
	for _, p := range d.pools {
		p.close()
	}
	d.leaveCgroups()
	d.mu.Lock()
	d.saveOrWarn()
	d.mu.Unlock()
	for _, a := range d.accelerators {
		if err := errors.Join(a.hw.Close(), a.bell.Free()); err != nil {
			d.log.Warn("close accelerator", "accelerator", a.name, "err", err)
		}
	}
	d.log.Info("ended")
}

// noteOf is note for what the guests of a domain cause: they can't fill the log with it.
func (d *Daemon) noteOf(dom *domain, kind, format string, args ...any) {
	ok, lost := dom.trickle.pass(time.Now())
	if lost > 0 {
		d.note("lost", dom.name, "%d events of its guests' doing are left out here", lost)
	}
	if ok {
		d.note(kind, dom.name, format, args...)
	}
}

// warn tells what is wrong with a configuration that holds all the same.
func (d *Daemon) warn(c *configs.Config) {
	for _, w := range c.Warnings {
		d.note("warning", "", "%s", w)
	}
}

// note writes an event to the journal and the log.
func (d *Daemon) note(kind, domain, format string, args ...any) {
	d.journal.note(kind, domain, format, args...)
	d.log.Info(fmt.Sprintf(format, args...), "kind", kind, "domain", domain)
}

// noteBy writes an event that a request of the control socket caused; by is nil for a signal.
func (d *Daemon) noteBy(by *control.Peer, kind, domain, format string, args ...any) {
	e := control.Event{Time: time.Now(), Kind: kind, Domain: domain, Text: fmt.Sprintf(format, args...)}
	said := []any{"kind", kind, "domain", domain}
	if by != nil {
		e.By = &control.Caller{UID: by.UID, PID: by.PID}
		said = append(said, "uid", by.UID, "pid", by.PID)
	}
	d.journal.add(e)
	d.log.Info(e.Text, said...)
}
