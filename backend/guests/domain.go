package guests

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/backend/meter"
	"pegasus/backend/objectives"
	"pegasus/backend/sched"
	"pegasus/backend/workers"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// maxDomains bounds the domains, which callers of the control socket can create.
const maxDomains = configs.MaxDomains

// mostEndpoints returns the number of domains at which the daemon rejects further undeclared ones, so that endpoints use
// at most half of the descriptors that it may open.
func mostEndpoints() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return maxDomains
	}
	return int(min(maxDomains, l.Cur/2))
}

// domain is a VM or a named group of processes. Registry.mu guards every field except name and limiter.
type domain struct {
	reg      *Registry // its table
	name     string
	settings configs.Domain     // in force
	set      map[string]setting // laid over the configuration by `pegasus set`
	declared bool
	owners
	removing bool                // Remove was called: the domain admits no process
	endpoint hypervisor.Endpoint // nil while the domain admits no process
	gone     chan struct{}       // closed when the domain ends, and when a reload revokes its removal
	uid      int                 // of its workers; 0: the daemon's

	settling   int            // guests that wait for an accelerator or a seat
	starts     workers.Starts // of its workers
	on         *accelerator   // its accelerator; nil while it has no guests
	attachment *sched.Attachment
	cpu        hypervisor.Weight // of the host's CPUs; zero unless a policy uses it
	guests     map[*guest]struct{}
	usage
	limiter  *events.RateLimiter
	logSpent int64 // time up to which its workers' log allowance was spent when the last of them left
}

// usage is what a domain has used so far, and lately. Registry.mu guards it.
type usage struct {
	account hardware.Account // while the domain is on an accelerator, and after that until its totals are saved
	booked  booked           // the part of its account that past includes
	past    totals           // of ended workers, and the booked engine time
	share   meter.Meter      // of the accelerator time that it used
	stood   meter.Meter      // of the time that its requests waited for admission
	engaged engagement
	workers meter.Meter // of its workers' CPU time
	latest  reading
	tracker *objectives.Tracker // nil: the domain has no objective
}

// booked is the part of an account that a domain's totals include already.
type booked struct {
	Opened int64               `json:"opened"`
	Total  hardware.EngineTime `json:"total"`
}

// openAccount opens the domain's account on an accelerator, or continues the domain's open account there. Registry.mu
// is held.
func (dom *domain) openAccount(a *accelerator) error {
	reg := dom.reg
	next, err := a.Hardware.Account(dom.name)
	if err != nil {
		return fmt.Errorf("domain %q: %w", dom.name, err)
	}
	if dom.account != nil && dom.account.Opened() != next.Opened() {
		reg.store.changed = true
		reg.store.saveOrWarn() // saves the totals, then closes the account on the other accelerator
		dom.closeAccount()
	}
	dom.account = next
	return nil
}

// closeAccount closes the domain's account, if it has one, after its totals were saved. Registry.mu is held.
func (u *usage) closeAccount() {
	if u.account != nil {
		u.book(u.account)
		u.account.Close()
		u.account = nil
	}
}

// book adds an account's engine time to the domain's totals, except the part booked already. Totals and booked part are
// saved together, so that a daemon killed at any time loses nothing and counts nothing twice. Registry.mu is held.
func (u *usage) book(a hardware.Account) {
	if u.booked.Opened != a.Opened() {
		u.booked = booked{Opened: a.Opened()}
	}
	now := a.Total()
	u.past.Used.Add(now, 1)
	u.past.Used.Add(u.booked.Total, -1)
	u.booked.Total = now
}

// totals is the use of workers.
type totals struct {
	Used  hardware.EngineTime `json:"used"`
	Calls uint64              `json:"calls"`
	Waits meter.Waits         `json:"waits"`
	Swap  gate.Swap           `json:"swap"`
	Stood int64               `json:"stood"` // ns that requests waited for admission
	CPU   int64               `json:"cpu"`   // ns on the host's CPUs, on engines and otherwise
}

func (t *totals) add(s *gate.Statistics) {
	t.Calls += s.Calls
	t.Stood += s.Stood
	t.Swap.OutBytes += s.Swap.OutBytes
	t.Swap.InBytes += s.Swap.InBytes
	t.Swap.Outs += s.Swap.Outs
	t.Swap.Ins += s.Swap.Ins
	w := meter.Waits(s.Waits)
	t.Waits.Add(&w)
}

// totals returns the use of all workers of the domain, including the running ones, and its device memory in bytes. d.mu
// is held.
func (dom *domain) totals() (t totals, memory uint64) {
	if dom.account != nil {
		dom.book(dom.account)
	}
	t = dom.past
	if dom.attachment != nil {
		memory = dom.attachment.Page.SegmentBytes()
	}
	for g := range dom.guests {
		t.CPU += g.cpuTime()
		if st, ok := dom.attachment.Page.Statistics(g.slot); ok {
			t.add(&st)
			t.Swap.Away += st.Swap.Away
			memory += st.Memory
		}
	}
	return t, memory
}

// hostMemory returns the sum of its guest processes' arenas, in bytes.
func (dom *domain) hostMemory() (sum uint64) {
	for g := range dom.guests {
		sum += g.arena
	}
	return sum
}

func newDomain(reg *Registry, s configs.Domain, declared bool) *domain {
	return &domain{reg: reg, name: s.Name, settings: s, declared: declared, set: map[string]setting{}, guests: map[*guest]struct{}{}, limiter: events.NewRateLimiter(),
		starts: workers.NewStarts(), owners: owners{leases: map[string]lease{}}, gone: make(chan struct{})}
}

// domain returns the domain of that name, with an open endpoint; it creates the domain from the configuration if there
// is none. Registry.mu is held.
func (reg *Registry) domain(name string) (*domain, error) {
	dom := reg.domains[name]
	if dom != nil && dom.endpoint != nil {
		return dom, nil
	}
	if dom != nil && !dom.admits() {
		return nil, dom.closed()
	}
	settings, err := reg.settingsOf(reg.config, name)
	if err != nil {
		return nil, control.Errorf(control.CodeInvalid, "domain %q: %v", name, err)
	}
	if dom == nil {
		dom = newDomain(reg, settings, reg.config.Declares(name))
	}
	return dom, dom.enter()
}

// declare adds the domains of the configuration. openDeclared opens their endpoints later: processes that `pegasus set`
// excludes must not enter before restore. Registry.mu is held.
func (reg *Registry) declare() error {
	for _, c := range reg.config.Domains {
		settings, err := reg.settingsOf(reg.config, c.Name)
		if err != nil {
			return err
		}
		if len(reg.domains) >= maxDomains {
			return tooManyDomains(c.Name)
		}
		reg.domains[c.Name] = newDomain(reg, settings, true)
	}
	return nil
}

// openDeclared opens the endpoints of the configuration's domains. Registry.mu is held.
func (reg *Registry) openDeclared() error {
	for _, c := range reg.config.Domains {
		if _, err := reg.domain(c.Name); err != nil {
			return err
		}
	}
	return nil
}

// enter opens the endpoint of a domain and adds a new domain to d.domains. Registry.mu is held.
func (dom *domain) enter() (err error) {
	reg := dom.reg
	if reg.ending {
		return errEnding
	}
	if reg.domains[dom.name] == nil && len(reg.domains) >= maxDomains {
		return tooManyDomains(dom.name)
	}
	if most := reg.mostEndpoints; !dom.declared && reg.domains[dom.name] == nil && len(reg.domains) >= most {
		return control.Errorf(control.CodeConflict, "domain %q: there are %d domains already, and each uses a descriptor, while half of RLIMIT_NOFILE is reserved for processes; raise the limit (LimitNOFILE= of the unit), or remove domains", dom.name, most)
	}
	if dom.endpoint, err = dom.openEndpoint(dom.settings); err != nil {
		return err
	}
	reg.domains[dom.name] = dom
	reg.store.changed = true
	return nil
}

func tooManyDomains(name string) error {
	return control.Errorf(control.CodeConflict, "domain %q: there are %d domains already, the most there can be", name, maxDomains)
}

// admits reports whether the configuration allows processes in a domain and no removal prevents it. Registry.mu is
// held.
func (dom *domain) admits() bool {
	reg := dom.reg
	_, err := reg.settingsOf(reg.config, dom.name)
	return err == nil && !dom.removing
}

// closed returns the error of a domain that admits no process.
func (dom *domain) closed() error {
	if dom.removing {
		return control.Errorf(control.CodeConflict, "domain %q: is being removed, with %s still in it; try again when these have ended", dom.name, control.Count(len(dom.guests)+len(dom.programs), "process"))
	}
	return control.Errorf(control.CodeInvalid, "domain %q: not in the configuration any more; declare it, or create it (pegasus create)", dom.name)
}

// openEndpoint opens an endpoint for guests; they are admitted once dom.endpoint is set.
func (dom *domain) openEndpoint(s configs.Domain) (hypervisor.Endpoint, error) {
	reg := dom.reg
	endpoint, err := reg.opt.Adapter.Open(reg.ctx, guardOf(s), func(ctx context.Context, n hypervisor.Connection) { waiting{dom}.receive(ctx, n) },
		func(err error) { dom.note("refused", "%v", err) })
	if err != nil {
		return nil, fmt.Errorf("domain %q: %w", dom.name, err)
	}
	return endpoint, nil
}

// guardOf returns the owner, group and mode of the socket, which decide which processes may connect.
func guardOf(s configs.Domain) hypervisor.Domain {
	return hypervisor.Domain{Name: s.Name, Owner: s.SocketOwner, Group: s.SocketGroup, Mode: s.SocketMode}
}

// guard changes which users may enter a domain, if the settings differ from those in force. Registry.mu is held.
func (dom *domain) guard(s configs.Domain) error {
	if dom.endpoint == nil || guardOf(dom.settings) == guardOf(s) {
		return nil
	}
	return dom.endpoint.Guard(guardOf(s))
}

// closeEndpoint closes an endpoint to new processes. Registry.mu is held.
func (reg *Registry) closeEndpoint(endpoint hypervisor.Endpoint) {
	endpoint.Close()
	reg.tasks.Go(endpoint.Wait)
}

// shut closes a domain that the configuration no longer declares. Registry.mu is held.
func (dom *domain) shut() {
	reg := dom.reg
	if dom.endpoint != nil {
		reg.closeEndpoint(dom.endpoint)
		dom.endpoint = nil
		if n := len(dom.guests); n > 0 {
			reg.journal.Note("shut", dom.name, "removed from the configuration: the domain admits no process; until their end it keeps %s", control.Count(n, "process"))
		}
	}
}

// endIfUnowned ends a domain without an owner and reports whether the domain ended. Registry.mu is held.
func (dom *domain) endIfUnowned() bool {
	reg := dom.reg
	if dom.owner() != "" || reg.domains[dom.name] != dom {
		return false
	}
	dom.drop()
	return true
}

// drop ends a domain without guest processes. Registry.mu is held.
func (dom *domain) drop() {
	reg := dom.reg
	if dom.endpoint != nil {
		reg.closeEndpoint(dom.endpoint)
		dom.endpoint = nil
	}
	dom.dropLeases()
	dom.dropPrograms()
	dom.closeAccount()
	delete(reg.domains, dom.name)
	reg.workers.FreeUID(dom.uid)
	reg.store.changed = true
	close(dom.gone)
	reg.journal.Note("gone", dom.name, "domain ended: used %v of accelerator time in %d calls", time.Duration(dom.past.Used.Sum()), dom.past.Calls)
}

// socket returns the address to which the domain's guests connect; empty: the domain admits none.
func (dom *domain) socket() string {
	if dom.endpoint == nil {
		return ""
	}
	return dom.endpoint.Address()
}

// canPromise returns an error for settings that guarantee more of an accelerator's memory to its domains than it has,
// unless they raise no domain's guarantee. Registry.mu is held.
func (reg *Registry) canPromise(next map[*domain]configs.Domain) error {
	for _, a := range reg.accelerators {
		var sum uint64
		more := false
		for _, dom := range reg.domains {
			if dom.on != a {
				continue
			}
			guarantee := dom.settings.Guarantee
			if s, ok := next[dom]; ok {
				more = more || s.Guarantee > guarantee
				guarantee = s.Guarantee
			}
			sum += uint64(guarantee)
		}
		if p := a.Hardware.Profile(); more && sum > p.Promisable {
			return control.Errorf(control.CodeInvalid, "memory_guarantee: the domains on %s would be guaranteed %d bytes together, of %d: lower one, or move a domain",
				a.Name, sum, p.Promisable)
		}
	}
	return nil
}

// canSell returns an error for settings that give the domains on an accelerator more credits than its max_credits, unless
// they raise no domain's credits. limit gives the max_credits of an accelerator. Registry.mu is held.
func (reg *Registry) canSell(next map[*domain]configs.Domain, limit func(accelerator int) int) error {
	for i, a := range reg.accelerators {
		sum, more := 0, false
		for _, dom := range reg.domains {
			if dom.on != a {
				continue
			}
			credits := dom.settings.Credits
			if s, ok := next[dom]; ok {
				more = more || s.Credits > credits
				credits = s.Credits
			}
			sum += credits
		}
		if most := limit(i); more && most > 0 && sum > most {
			return control.Errorf(control.CodeInvalid, "credits: the domains on %s would have %d credits together, of max_credits = %d: lower one, or move a domain", a.Name, sum, most)
		}
	}
	return nil
}

// apply puts settings into force. Registry.mu is held.
func (dom *domain) apply(s configs.Domain) {
	reg := dom.reg
	reg.store.changed = true
	if err := dom.guard(s); err != nil { // reload and set have called it before and returned the error
		reg.journal.Note("warning", dom.name, "owner, group and mode of the socket stay: %v", err)
	}
	dom.settings = s
	if dom.on == nil {
		return
	}
	reg.setQuotas(dom.attachment.Page, s)
	for _, err := range reg.workers.Limit(dom.name, dom.limits()) {
		dom.note("warning", "%v", err)
	}
	dom.on.SetShares(dom.attachment, s, dom.cpu.Credits)
}

func (reg *Registry) setQuotas(p *gate.Page, s configs.Domain) {
	p.SetQuota(gate.DeviceMemory, unlimited(s.Memory))
	p.SetQuota(gate.HostMemory, unlimited(s.HostMemory))
	p.SetPreparers(runtime.NumCPU() / 4) // a quarter of the processors
	p.SetHandlers(reg.handlers())
}

// handlers returns how many workers of a domain may handle calls at once: half as many as there are processors, or all
// while no other domain has workers.
func (reg *Registry) handlers() int {
	if reg.several {
		return runtime.NumCPU() / 2
	}
	return runtime.NumCPU()
}

// shareProcessors adapts the domains to whether several of them have workers. Registry.mu is held.
func (reg *Registry) shareProcessors() {
	several := false
	for _, g := range reg.guests {
		several = len(g.dom.guests) != len(reg.guests)
		break
	}
	if several == reg.several {
		return
	}
	reg.several = several
	for _, dom := range reg.domains {
		if dom.on != nil {
			dom.attachment.Page.SetHandlers(reg.handlers())
		}
	}
}

func unlimited(s configs.Size) uint64 {
	if s == 0 {
		return 1<<64 - 1
	}
	return uint64(s)
}
