// Package guests admits guest processes: it owns the domains with their settings and owners, places them on
// accelerators, reserves a seat for each guest process, starts its worker and releases its resources, and keeps the
// state that the next daemon restores.
//
// Callers: backend, which passes accelerators and adapters, and backend/api, which answers the control socket.
//
// Trust boundary: the package trusts the host's kernel, and its own workers within their domain's gate page. It trusts
// nothing that a guest wrote, and never maps it.
//
// Locks: Registry.reloading and a gate page's own lock before Registry.mu. Registry.mu is before the locks of
// accelerators, workers, samplers and the journal. It is not held across a wait, nor while waiting for a value that
// workers write.
package guests

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"pegasus/accel/placement"
	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/backend/meter"
	"pegasus/backend/sched"
	"pegasus/backend/workers"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// CPUs is the CPU side of the domains; cpus.Sampler implements it.
type CPUs interface {
	// WeighSoon requests that domains' CPU weights be read again, because their processes have changed.
	WeighSoon()
	// Steal returns the run and wait time of a domain's vCPUs, and the recent part of their time in which they waited.
	Steal(domain string) (hypervisor.Spent, float64)
}

// Options configures a Registry. The fields from Config to Agent are as in backend.Options.
type Options struct {
	Config      *configs.Config
	ConfigPath  string
	Accept      configs.Options
	RuntimeDir  string
	Private     bool
	Linger      time.Duration
	Adapter     hypervisor.Adapter
	Machines    hypervisor.Machines
	DomUs       bool
	Tuner       hypervisor.Tuner
	Agent       func(domain string) (release string, came bool)
	SetLogLevel func(level string)

	RuntimeDirGiven bool
	LogLevel        string

	Journal *events.Journal
	Workers *workers.Workers
	Log     *slog.Logger
}

// Registry is the table of domains and their guest processes.
type Registry struct {
	opt     Options
	log     *slog.Logger
	started time.Time
	journal *events.Journal
	workers *workers.Workers
	cpus    CPUs
	checks  []control.Check // of the confinement of workers
	ctx     context.Context // ends when the daemon does
	end     context.CancelFunc
	tasks   sync.WaitGroup
	rest    *time.Timer // private daemon: fires after a period without use

	reloading sync.Mutex // held for a whole reload; before mu

	predicting sync.Mutex // held for a whole prediction of Fits

	// mu guards the fields below, and the domains, guests and accelerators that they refer to.
	mu       sync.Mutex
	domains  map[string]*domain
	machines map[string]hypervisor.Machine // by domain, as last reported
	ending   bool

	configuration
	room
	seats
	owned
	store store
}

// configuration is the configuration in force.
type configuration struct {
	config      *configs.Config
	configError string             // why the last reload was rejected
	set         map[string]setting // of [daemon], laid over the configuration
}

// room holds the accelerators and the queue of the domains that wait for one.
type room struct {
	accelerators []*accelerator
	queue        *placement.Queue
	freed        chan struct{} // closed and replaced when room becomes free
}

// seats holds the guest processes.
type seats struct {
	guests    map[uint64]*guest // by worker ID
	nextGuest uint64
	slices    map[int]bool // device windows in use
	several   bool         // more than one domain has guests
	arriving  int          // guests that wait for an answer
	adopted   int          // guests of the previous daemon
}

// owned counts what keeps undeclared domains.
type owned struct {
	holders       int       // programs that hold domains
	leases        int       // of all domains
	soonest       time.Time // lower bound on the next expiry; zero: no lease has a term
	mostEndpoints int       // bound on domains for creating undeclared ones
}

// accelerator is an accelerator and what the control socket changed and measured of it. Registry.mu guards the fields.
type accelerator struct {
	*sched.Accelerator
	load     meter.Meter        // share of time in which its engines were held
	switched map[string]setting // settings that `pegasus policy` laid over the configuration
}

// New returns a registry without domains. SetCPUs, Start and Open must be called before any other method.
func New(opt Options) *Registry {
	reg := &Registry{
		opt: opt, log: opt.Log, journal: opt.Journal, workers: opt.Workers,
		domains:       make(map[string]*domain),
		machines:      make(map[string]hypervisor.Machine),
		configuration: configuration{config: opt.Config},
		room:          room{freed: make(chan struct{})},
		seats:         seats{guests: make(map[uint64]*guest), slices: make(map[int]bool)},
		owned:         owned{mostEndpoints: mostEndpoints()},
	}
	reg.store.reg = reg
	return reg
}

// SetCPUs sets the CPU side, which needs the registry's domains itself.
func (reg *Registry) SetCPUs(c CPUs) { reg.cpus = c }

// Start sets the context in which guests are served; end ends it.
func (reg *Registry) Start(ctx context.Context, end context.CancelFunc) {
	reg.ctx, reg.end = ctx, end
	reg.started = time.Now()
	reg.rest = time.AfterFunc(time.Hour, reg.endIfIdle)
	reg.rest.Stop()
}

// Open adds the accelerators and the configuration's domains, restores the state of the previous daemon, takes over the
// workers that it left, and opens the domains' endpoints. checks are those of the workers' confinement.
func (reg *Registry) Open(accelerators []*sched.Accelerator, left []*workers.Survivor, checks []control.Check) error {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.checks = checks
	for _, a := range accelerators {
		reg.accelerators = append(reg.accelerators, &accelerator{Accelerator: a, switched: map[string]setting{}})
	}
	if err := reg.declare(); err != nil {
		return err
	}
	reg.store.restore()
	adoption{reg}.adopt(left)
	for _, a := range reg.accelerators {
		a.SetPassing(reg.passing) // from now on: survivors have their own accounts
	}
	if err := reg.openDeclared(); err != nil {
		return err
	}
	reg.store.openRestored()
	if err := reg.opt.Adapter.Sweep(func(name string) bool { return reg.domains[name] != nil && reg.domains[name].endpoint != nil }); err != nil {
		reg.log.Warn("remove old sockets", "err", err)
	}
	settings := make([]configs.Accelerator, len(reg.accelerators))
	for i, a := range reg.accelerators {
		settings[i] = a.Settings()
	}
	var err error
	if reg.queue, err = reg.newQueue(settings, func(dom *domain) configs.Domain { return dom.settings }); err != nil {
		return err
	}
	reg.workers.Resize(reg.config.Daemon.WorkerPool)
	return nil
}

// Run samples the domains' use and follows the host's machines until the context of Start ends.
func (reg *Registry) Run() {
	var tasks sync.WaitGroup
	tasks.Go(func() { reg.sample(reg.ctx) })
	if reg.opt.Machines != nil {
		tasks.Go(func() { reg.opt.Machines.Watch(reg.ctx, reg.updateMachines) })
	}
	tasks.Wait()
}

// Adopted returns how many workers of the previous daemon were taken over.
func (reg *Registry) Adopted() int {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.adopted
}

// arrivalTime is the least time for which a private daemon waits for the program that started it: that program connects
// when the daemon is ready, later on a busy host.
const arrivalTime = 3 * time.Second

// Ready logs whether the domains' limits exceed the host's memory, and starts the timer of a private daemon without
// use.
func (reg *Registry) Ready() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if c := reg.admission(); c.State != "ok" && !reg.opt.Private { // a user's own programs take all that the user has
		reg.log.Warn("domains' limits exceed the host's memory", "why", c.Detail, "remedy", c.Fix)
	}
	reg.restIfIdle()
	if reg.opt.Private && reg.idle() {
		reg.rest.Reset(max(reg.opt.Linger, arrivalTime))
	}
}

// Expel ends all workers of a domain after one of them has overwritten the domain's pages; the daemon cannot determine
// which one. It does not wait for them.
func (reg *Registry) Expel(m *sched.Attachment) {
	reg.tasks.Go(func() {
		reg.mu.Lock()
		defer reg.mu.Unlock()
		dom := reg.domains[m.Domain]
		if dom == nil || dom.attachment != m {
			return
		}
		dom.note("forged", "pages shared with the daemon were overwritten by a worker; ending the domain's %d workers", len(dom.guests))
		for g := range dom.guests {
			g.doomed = true
			if g.worker != nil {
				g.worker.Kill()
			}
		}
		dom.on.Expelled(m)
	})
}

// Leave closes the endpoints. Workers of the host's daemon continue and wait for the next daemon; a private daemon's
// workers are killed.
func (reg *Registry) Leave() {
	reg.mu.Lock()
	reg.ending = true
	var endpoints []hypervisor.Endpoint
	for _, dom := range reg.domains {
		if dom.endpoint == nil {
			continue
		}
		if reg.opt.Private {
			dom.endpoint.Close()
		} else {
			dom.endpoint.Leave()
		}
		endpoints = append(endpoints, dom.endpoint)
	}
	reg.mu.Unlock()
	for _, endpoint := range endpoints {
		endpoint.Wait()
	}
	if reg.opt.Private {
		reg.endGuests()
	}
}

// Wait blocks, after Leave and the end of the context, until all goroutines of the registry have ended, and a private
// daemon's workers too.
func (reg *Registry) Wait() {
	reg.tasks.Wait()
	if reg.opt.Private {
		reg.reapGuests()
	}
	reg.rest.Stop()
}

// Save writes the state for the next daemon.
func (reg *Registry) Save() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.store.saveOrWarn()
}

// CloseTime bounds the time that the kernel takes to release killed workers.
const CloseTime = deathGrace

// note adds an event that a domain's guests caused. It limits their rate, so that guests cannot fill the log.
func (dom *domain) note(kind, format string, args ...any) {
	dom.reg.journal.NoteLimited(dom.limiter, kind, dom.name, format, args...)
}

// Warn logs the warnings of a valid configuration.
func (reg *Registry) Warn(c *configs.Config) {
	for _, w := range c.Warnings {
		reg.journal.Note("warning", "", "%s", w)
	}
}
