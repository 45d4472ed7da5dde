package backend

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pegasus/backend/control"
	"pegasus/policies"
)

// openControl listens on the control socket, accessible to root, to the daemon's user, and to the control group if one
// is configured.
func (d *Daemon) openControl() (*control.Listener, error) {
	l, err := control.Listen(d.opt.RuntimeDir, d.config.Daemon.ControlSocket)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	path, mode := l.Addr().String(), os.FileMode(0o600)
	if d.config.Daemon.ControlGroup != "" {
		gid, err := groupID(d.config.Daemon.ControlGroup)
		if err == nil {
			mode = 0o660
			err = os.Chown(path, -1, gid)
		}
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("control socket: control_group = %q: %w", d.config.Daemon.ControlGroup, err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

func groupID(name string) (int, error) {
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// Authorize implements control.Handler: root, the daemon's own user, and the control group may call every method; other
// users none.
func (d *Daemon) Authorize(p control.Peer, method string) error {
	if p.UID == 0 || p.UID == os.Geteuid() {
		return nil
	}
	if group := d.opt.Config.Daemon.ControlGroup; group != "" { // as for the socket, the group configured at the start counts
		if gid, err := groupID(group); err == nil && p.Member(gid) {
			return nil
		}
	}
	return control.Errorf(control.CodeDenied, "%s: user %d may not control this daemon; root may, and members of control_group", method, p.UID)
}

// Handle implements control.Handler.
func (d *Daemon) Handle(ctx context.Context, p control.Peer, q *control.Request, emit func(v any) error) (any, error) {
	switch q.Method {
	case control.MethodStatus:
		return d.status(), nil
	case control.MethodDomains:
		return withParams(q, d.showDomains)
	case control.MethodAccelerators:
		return d.showAccelerators(), nil
	case control.MethodPolicy:
		return withParams(q, func(s control.PolicyParams) ([]control.Accelerator, error) { return d.policy(p, s) })
	case control.MethodSet:
		return withParams(q, func(s control.SetParams) (control.Domain, error) { return d.set(p, s) })
	case control.MethodReload:
		return d.reload(&p)
	case control.MethodEvents:
		return struct{}{}, d.tellEvents(ctx, emit)
	case control.MethodTrace:
		return withParams(q, func(p control.TraceParams) (struct{}, error) { return struct{}{}, d.trace(ctx, p, emit) })
	case control.MethodTimeline:
		return struct{}{}, d.timeline(ctx, emit)
	case control.MethodExplain:
		return withParams(q, d.explain)
	case control.MethodHold:
		return withParams(q, func(h control.HoldParams) (control.HoldResult, error) { return d.hold(p, h) })
	case control.MethodShutdown:
		return withParams(q, func(s control.ShutdownParams) (struct{}, error) { return d.shutdown(p, s) })
	case control.MethodCreate:
		return withParams(q, func(s control.CreateParams) (control.Domain, error) { return d.create(p, s) })
	case control.MethodRenew:
		return withParams(q, func(s control.LeaseParams) (control.Domain, error) { return d.renew(p, s) })
	case control.MethodRelease:
		return withParams(q, func(s control.LeaseParams) (struct{}, error) { return struct{}{}, d.release(p, s) })
	case control.MethodRemove:
		return withParams(q, func(s control.RemoveParams) (struct{}, error) { return struct{}{}, d.remove(ctx, p, s) })
	default:
		return nil, control.Errorf(control.CodeMethod, "there is no method %q", q.Method)
	}
}

// withParams decodes a request's parameters and calls do with them.
func withParams[P, R any](q *control.Request, do func(P) (R, error)) (any, error) {
	var p P
	if err := q.Decode(&p); err != nil {
		return nil, err
	}
	return do(p)
}

func (d *Daemon) status() control.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return control.Status{
		Version: control.Release(), Protocol: control.Version, PID: os.Getpid(),
		Private: d.opt.Private, DomUs: d.opt.DomUs, RuntimeDir: d.opt.RuntimeDir, Config: d.opt.ConfigPath,
		Started: d.started, Guests: len(d.guests), Holders: d.holders, ReadyPool: d.workers.Ready(),
		Adopted: d.adopted, Policies: policies.Names(), Confinement: append(slices.Clip(d.checks), d.admission()), ConfigError: d.configError,
	}
}

func (d *Daemon) showDomains(q control.DomainParams) ([]control.Domain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []control.Domain{}
	if q.Domain != "" {
		dom := d.domains[q.Domain]
		if dom == nil {
			return nil, d.noDomain(q.Domain)
		}
		return append(all, dom.show()), nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.domains)) {
		all = append(all, d.domains[name].show())
	}
	return all, nil
}

func (d *Daemon) showAccelerators() []control.Accelerator {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []control.Accelerator{}
	for _, a := range d.accelerators {
		all = append(all, d.showAccelerator(a))
	}
	return all
}

func (d *Daemon) tellEvents(ctx context.Context, emit func(v any) error) error {
	latest, next, stop := d.journal.Follow()
	defer stop()
	for _, e := range latest {
		if err := emit(e); err != nil {
			return err
		}
	}
	for {
		select {
		case e := <-next:
			if err := emit(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

const (
	// traceBacklog bounds the records that wait for their reader.
	traceBacklog = 1 << 16
	// traceEvery is the period at which records are sent in batches: waking the client at every step of the scheduler
	// would change what the trace measures.
	traceEvery = 100 * time.Millisecond
)

// trace emits the events and decisions of an accelerator's scheduler.
func (d *Daemon) trace(ctx context.Context, q control.TraceParams, emit func(v any) error) error {
	a, err := d.traced(q.Accelerator)
	if err != nil {
		return err
	}
	records, slow := make(chan policies.Record, traceBacklog), make(chan struct{})
	late := sync.OnceFunc(func() { close(slow) })
	err = a.Record(func(r policies.Record) {
		if q.Used && !aboutUse(r) {
			return
		}
		select {
		case records <- r:
		default:
			late() // a trace with a gap is useless
		}
	})
	if err != nil {
		return err
	}
	defer a.Record(nil)
	tick := time.NewTicker(traceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for range len(records) {
				if err := emit(<-records); err != nil {
					return err
				}
			}
		case <-slow:
			return control.Errorf(control.CodeConflict, "the trace of accelerator %q is read too slowly", a.Name)
		case <-ctx.Done():
			return nil
		}
	}
}

// aboutUse reports whether a record is needed to attribute use: the trace's header, attachments, and charges for work.
func aboutUse(r policies.Record) bool {
	switch e := r.Event; {
	case r.Choice != nil:
		return true
	case e == nil:
		return false
	case e.Kind == policies.Charge:
		return e.Used.Busy() > 0
	default:
		return e.Kind == policies.Attach
	}
}

// traced returns the accelerator of that name, or the only one if name is empty.
func (d *Daemon) traced(name string) (*accelerator, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, a := range d.accelerators {
		if a.Name == name || name == "" && len(d.accelerators) == 1 {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return nil, control.Errorf(control.CodeInvalid, "accelerator %q: there is none of that name; there are %s", name, strings.Join(names, ", "))
}

func (d *Daemon) shutdown(p control.Peer, q control.ShutdownParams) (struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.IfIdle && !d.idle() {
		return struct{}{}, control.Errorf(control.CodeConflict, "the daemon is in use by %d guests and %d programs", len(d.guests), d.holders)
	}
	d.ending = true
	d.journal.NoteBy(&p, "shutdown", "", "told to end")
	d.end()
	return struct{}{}, nil
}
