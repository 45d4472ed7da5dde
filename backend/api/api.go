// Package api answers the requests of the control socket. It owns no state of the daemon: it calls backend/guests, and
// streams events, traces and timelines.
//
// Callers: backend.
//
// Trust boundary: control.Serve authenticates the peer of each connection; Authorize decides about its requests.
//
// Locks: Server.mu is a leaf.
package api

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/backend/guests"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/policies"
)

// Options configures a Server.
type Options struct {
	Config     *configs.Config // of the daemon's start
	RuntimeDir string
	// Runs returns a sampler of the CPUs for a timeline; nil: timelines have no CPU lines.
	Runs func() hypervisor.Runs

	Guests guests.Requests
	// Reload reads the configuration again.
	Reload  func(by *control.Peer) (control.ReloadResult, error)
	Journal *events.Journal
}

// Server implements control.Handler.
type Server struct {
	opt    Options
	guests guests.Requests

	mu      sync.Mutex
	watched bool // a client reads the timeline
}

// New returns a server.
func New(opt Options) *Server { return &Server{opt: opt, guests: opt.Guests} }

// Listen listens on the control socket, accessible to root, to the daemon's user, and to the control group if one
// is configured.
func (s *Server) Listen() (*control.Listener, error) {
	l, err := control.Listen(s.opt.RuntimeDir, s.opt.Config.Daemon.ControlSocket)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	path, mode := l.Addr().String(), os.FileMode(0o600)
	if s.opt.Config.Daemon.ControlGroup != "" {
		gid, err := groupID(s.opt.Config.Daemon.ControlGroup)
		if err == nil {
			mode = 0o660
			err = os.Chown(path, -1, gid)
		}
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("control socket: control_group = %q: %w", s.opt.Config.Daemon.ControlGroup, err)
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
func (s *Server) Authorize(p control.Peer, method string) error {
	if p.UID == 0 || p.UID == os.Geteuid() {
		return nil
	}
	if group := s.opt.Config.Daemon.ControlGroup; group != "" { // as for the socket, the group configured at the start counts
		if gid, err := groupID(group); err == nil && p.Member(gid) {
			return nil
		}
	}
	return control.Errorf(control.CodeDenied, "%s: user %d may not control this daemon; root may, and members of control_group", method, p.UID)
}

// Handle implements control.Handler.
func (s *Server) Handle(ctx context.Context, p control.Peer, q *control.Request, emit func(v any) error) (any, error) {
	switch q.Method {
	case control.MethodStatus:
		return s.guests.Status(), nil
	case control.MethodDomains:
		return withParams(q, s.guests.Domains)
	case control.MethodAccelerators:
		return s.guests.Accelerators(), nil
	case control.MethodPolicy:
		return withParams(q, func(q control.PolicyParams) ([]control.Accelerator, error) { return s.guests.SwitchPolicy(p, q) })
	case control.MethodSet:
		return withParams(q, func(q control.SetParams) (control.Domain, error) { return s.guests.Set(p, q) })
	case control.MethodReload:
		return s.opt.Reload(&p)
	case control.MethodEvents:
		return struct{}{}, s.sendEvents(ctx, emit)
	case control.MethodTrace:
		return withParams(q, func(p control.TraceParams) (struct{}, error) { return struct{}{}, s.trace(ctx, p, emit) })
	case control.MethodTimeline:
		return struct{}{}, s.timeline(ctx, emit)
	case control.MethodExplain:
		return withParams(q, s.explain)
	case control.MethodHold:
		return withParams(q, func(h control.HoldParams) (control.HoldResult, error) { return s.guests.Hold(p, h) })
	case control.MethodShutdown:
		return withParams(q, func(q control.ShutdownParams) (struct{}, error) { return s.guests.Shutdown(p, q) })
	case control.MethodCreate:
		return withParams(q, func(q control.CreateParams) (control.Domain, error) { return s.guests.Create(p, q) })
	case control.MethodRenew:
		return withParams(q, func(q control.LeaseParams) (control.Domain, error) { return s.guests.Renew(p, q) })
	case control.MethodRelease:
		return withParams(q, func(q control.LeaseParams) (struct{}, error) { return struct{}{}, s.guests.Release(p, q) })
	case control.MethodRemove:
		return withParams(q, func(q control.RemoveParams) (struct{}, error) { return struct{}{}, s.guests.Remove(ctx, p, q) })
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

func (s *Server) sendEvents(ctx context.Context, emit func(v any) error) error {
	latest, next, stop := s.opt.Journal.Follow()
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
func (s *Server) trace(ctx context.Context, q control.TraceParams, emit func(v any) error) error {
	a, err := s.guests.Accelerator(q.Accelerator)
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
