package guests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
)

// lease keeps a created domain for a holder that is not a process of this host, such as an
// orchestrator's pod.
type lease struct {
	UID     int       `json:"uid"`              // of the caller of create
	Expires time.Time `json:"expires,omitzero"` // zero: the lease has no term
}

// Bounds on the state that callers of the control socket can create.
const (
	maxLeases   = 2 * maxDomains // of all domains
	mostHolder  = 128            // bytes of a holder's id
	longestTerm = 366 * 24 * time.Hour
)

// Create makes a domain with a lease, or adds a lease to a created domain, or renews the lease.
func (r Requests) Create(p control.Peer, q control.CreateParams) (none control.Domain, err error) {
	reg := r.reg
	holder, l, err := newLease(p, q.Holder, q.Expires)
	if err != nil {
		return none, err
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	settings, err := r.settingsFor(q.Domain, q.Settings)
	if err != nil {
		return none, err
	}
	dom := reg.domains[q.Domain]
	if dom != nil {
		err = r.mayLease(dom, holder, q.Settings, settings)
	}
	if err != nil {
		return none, err
	}
	if _, has := r.leaseOf(q.Domain, holder); !has && reg.leases >= maxLeases {
		return none, control.Errorf(control.CodeConflict, "domain %q: there are %d leases already, the most there can be; release some", q.Domain, maxLeases)
	}
	if dom != nil && !dom.created() { // a domain of ended programs, on a private daemon
		dom.drop()
		dom = nil
	}
	fresh := dom == nil
	if fresh {
		dom = newDomain(reg, settings, false)
		dom.requested = requested{}
		maps.Copy(dom.requested, q.Settings)
		dom.creation = creation{callerOf(p), time.Now().Round(0)}
	}
	if dom.endpoint == nil {
		if err := dom.enter(); err != nil {
			return none, err
		}
	}
	before, had := dom.leases[holder]
	dom.setLease(holder, l)
	if err := reg.store.save(); err != nil { // else the next daemon would not restore the domain
		if had {
			dom.setLease(holder, before)
		} else {
			dom.dropLease(holder)
		}
		dom.endIfUnowned()
		return none, control.Errorf(control.CodeInternal, "create domain %q: write the state: %v", q.Domain, err)
	}
	switch {
	case fresh:
		reg.journal.NoteBy(&p, "create", dom.name, "created for %s%s", holder, termText(q.Expires))
	case !had:
		reg.journal.NoteBy(&p, "lease", dom.name, "leased by %s, too%s", holder, termText(q.Expires))
	}
	return dom.show(), nil
}

// newLease returns the holder and the lease that a request describes.
func newLease(p control.Peer, holder string, term int64) (string, lease, error) {
	l := lease{UID: p.UID}
	holder, err := holderOf(p, holder)
	if err != nil {
		return "", l, err
	}
	if term < 0 || term > int64(longestTerm) {
		return "", l, control.Errorf(control.CodeInvalid, "lease of %s: expires in %v: must be 0, for never, to %v", holder, time.Duration(term), longestTerm)
	}
	if term > 0 {
		l.Expires = time.Now().Add(time.Duration(term))
	}
	return holder, l, nil
}

// holderOf returns the holder of a request: by default the caller's user.
func holderOf(p control.Peer, holder string) (string, error) {
	if holder == "" {
		return fmt.Sprintf("uid-%d", p.UID), nil
	}
	if len(holder) > mostHolder || strings.ContainsFunc(holder, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", control.Errorf(control.CodeInvalid, "holder %.*q: must be 1 to %d printable ASCII characters without spaces", mostHolder, holder, mostHolder)
	}
	return holder, nil
}

func termText(ns int64) string {
	if ns == 0 {
		return ""
	}
	return fmt.Sprintf(", for %v", time.Duration(ns))
}

// settingsFor returns the settings of a domain that create would make. Registry.mu is held.
func (r Requests) settingsFor(name string, settings map[string]string) (configs.Domain, error) {
	s, err := r.reg.undeclaredWith(name, settings)
	if err != nil {
		return s, control.Errorf(control.CodeInvalid, "create domain %q: %v", name, err)
	}
	return s, nil
}

// undeclaredWith returns the settings of an undeclared domain that is given some. Registry.mu is held.
func (reg *Registry) undeclaredWith(name string, settings map[string]string) (configs.Domain, error) {
	s := reg.config.Undeclared(name)
	err := configs.CheckName(name)
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if err == nil {
			err = s.Give(k, settings[k])
		}
	}
	if err == nil {
		err = s.Check(reg.config)
	}
	return s, err
}

// mayLease returns an error for a domain that has another owner or was created with other settings. Registry.mu is
// held.
func (r Requests) mayLease(dom *domain, holder string, given map[string]string, settings configs.Domain) error {
	reg := r.reg
	conflict := func(format string, args ...any) error {
		return control.Errorf(control.CodeConflict, "create domain %q for %s: %s", dom.name, holder, fmt.Sprintf(format, args...))
	}
	switch {
	case dom.declared:
		return conflict("the configuration declares it; change it there, or by `pegasus set`, or take another name")
	case dom.removing || dom.endpoint == nil && !dom.created():
		return dom.closed()
	case dom.created() && dom.requested.over(reg.config.Undeclared(dom.name)) != settings:
		return conflict("it was created for %s with %s, not with %s; change it by `pegasus set`, or take another name",
			orNone(dom.holders()), orDefaults(dom.requested), orDefaults(given))
	case dom.created():
		return nil
	case dom.isMachine():
		return conflict("it is a virtual machine's; take another name")
	}
	if uses := dom.inUse(""); len(uses) > 0 {
		return conflict("%s; take another name, or try again when they have ended", strings.Join(uses, ", "))
	}
	return nil
}

func orDefaults(settings map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		all = append(all, k+"="+settings[k])
	}
	if len(all) == 0 {
		return "the defaults"
	}
	return strings.Join(all, " ")
}

func (r Requests) leaseOf(domain, holder string) (l lease, ok bool) {
	reg := r.reg
	if dom := reg.domains[domain]; dom != nil {
		l, ok = dom.leases[holder]
	}
	return l, ok
}

// setLease adds or replaces the lease of a holder. Registry.mu is held.
func (dom *domain) setLease(holder string, l lease) {
	reg := dom.reg
	if _, has := dom.leases[holder]; !has {
		reg.leases++
	}
	dom.leases[holder] = l
	reg.awaitTerm(l.Expires)
	reg.store.changed = true
}

// dropLease deletes the lease of a holder. Registry.mu is held.
func (dom *domain) dropLease(holder string) {
	reg := dom.reg
	delete(dom.leases, holder)
	reg.leases--
	reg.store.changed = true
}

func (dom *domain) dropLeases() {
	for holder := range dom.leases {
		dom.dropLease(holder)
	}
}

// awaitTerm has expire run at t; zero: no term. Registry.mu is held.
func (o *owned) awaitTerm(t time.Time) {
	if !t.IsZero() && (o.soonest.IsZero() || t.Before(o.soonest)) {
		o.soonest = t
	}
}

// expire deletes leases after their term, and ends the wait for machines. Registry.mu is held.
func (reg *Registry) expire(now time.Time) {
	if reg.soonest.IsZero() || now.Before(reg.soonest) {
		return
	}
	reg.soonest = time.Time{}
	over := func(t time.Time) bool {
		if t.IsZero() || now.Before(t) {
			reg.awaitTerm(t)
			return false
		}
		return true
	}
	for _, dom := range reg.domains {
		if over(dom.awaited) {
			dom.awaited = time.Time{}
		}
		for holder, l := range dom.leases {
			if over(l.Expires) {
				dom.dropLease(holder)
				reg.journal.Note("expire", dom.name, "the lease of %s has expired", holder)
			}
		}
		dom.endIfUnowned()
	}
}

// Renew replaces the term of a lease.
func (r Requests) Renew(p control.Peer, q control.LeaseParams) (none control.Domain, err error) {
	reg := r.reg
	holder, l, err := newLease(p, q.Holder, q.Expires)
	if err != nil {
		return none, err
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	dom, err := r.leased(q.Domain, holder)
	if err != nil {
		return none, err
	}
	dom.setLease(holder, l)
	reg.store.saveOrWarn()
	return dom.show(), nil
}

// Release deletes a lease. The domain ends when the last lease and the last process have gone.
func (r Requests) Release(p control.Peer, q control.LeaseParams) error {
	reg := r.reg
	holder, err := holderOf(p, q.Holder)
	if err != nil {
		return err
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	dom, err := r.leased(q.Domain, holder)
	if err != nil {
		return err
	}
	dom.dropLease(holder)
	reg.journal.NoteBy(&p, "release", dom.name, "released by %s", holder)
	dom.endIfUnowned()
	reg.store.saveOrWarn()
	return nil
}

func (r Requests) leased(name, holder string) (*domain, error) {
	reg := r.reg
	dom := reg.domains[name]
	if dom == nil {
		return nil, r.noDomain(name)
	}
	if _, has := dom.leases[holder]; !has {
		return nil, control.Errorf(control.CodeNotFound, "domain %q: %s has no lease of it; the holders are: %s", name, holder, orNone(dom.holders()))
	}
	return dom, nil
}

// Remove ends an undeclared domain. It blocks until the domain has ended or ctx is done; the end of ctx does not
// cancel the removal.
func (r Requests) Remove(ctx context.Context, p control.Peer, q control.RemoveParams) error {
	reg := r.reg
	dom, gone, err := r.beginRemoval(p, q)
	if err != nil {
		return err
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return errEnding
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.domains[q.Domain] == dom {
		return control.Errorf(control.CodeConflict, "remove domain %q: a reload declared the domain meanwhile", q.Domain)
	}
	return nil
}

func (r Requests) beginRemoval(p control.Peer, q control.RemoveParams) (*domain, <-chan struct{}, error) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	dom := reg.domains[q.Domain]
	if dom == nil {
		return nil, nil, r.noDomain(q.Domain)
	}
	if err := r.mayRemove(dom, p, q.Mode); err != nil {
		return nil, nil, err
	}
	reg.journal.NoteBy(&p, "remove", dom.name, "removed, with %s and %s in it", control.Count(len(dom.guests), "guest process"), control.Count(len(dom.programs), "program"))
	dom.removing = true
	reg.store.changed = true
	dom.dropLeases()
	if dom.endpoint != nil {
		reg.closeEndpoint(dom.endpoint)
		dom.endpoint = nil
	}
	if q.Mode == control.RemoveEnd {
		dom.dropPrograms()
		dom.dismissAll()
	}
	dom.endIfUnowned()
	reg.store.saveOrWarn()
	return dom, dom.gone, nil
}

// mayRemove returns an error for a domain that remove must not end in the mode. Registry.mu is held.
func (r Requests) mayRemove(dom *domain, p control.Peer, mode string) error {
	reg := r.reg
	conflict := func(format string, args ...any) error {
		return control.Errorf(control.CodeConflict, "remove domain %q: %s", dom.name, fmt.Sprintf(format, args...))
	}
	switch mode {
	case "", control.RemoveRefuse, control.RemoveWait, control.RemoveEnd:
	default:
		return control.Errorf(control.CodeInvalid, "remove domain %q: mode %.20q: must be %s, %s or %s", dom.name, mode, control.RemoveRefuse, control.RemoveWait, control.RemoveEnd)
	}
	switch {
	case dom.declared:
		return conflict("%s declares it; take its [[domain]] out of the file, then `pegasus reload`", reg.opt.ConfigPath)
	case dom.isMachine():
		return conflict("it is a virtual machine's; `pegasus detach %s` ends that", dom.name)
	case mode == control.RemoveWait || mode == control.RemoveEnd:
		return nil
	}
	own, _ := holderOf(p, "")
	if uses := dom.inUse(own); len(uses) > 0 {
		return conflict("%s; --wait ends leases and waits for processes, --kill ends also their use of the accelerator", strings.Join(uses, ", "))
	}
	return nil
}

// dismissAll ends all workers of a domain. Registry.mu is held.
func (dom *domain) dismissAll() {
	for g := range dom.guests {
		g.doomed = true
		if g.worker != nil {
			g.dismiss()
		}
	}
}

func (o *owners) showLeases() (all []control.Lease) {
	for _, holder := range slices.Sorted(maps.Keys(o.leases)) {
		l := o.leases[holder]
		all = append(all, control.Lease{Holder: holder, UID: l.UID, Expires: l.Expires})
	}
	return all
}
