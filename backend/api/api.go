// Package api is the daemon's API: HTTP and JSON on the control socket, described by an OpenAPI document that is
// generated from the operations. It owns no state of the daemon: it calls backend/guests, and streams events, traces and
// timelines.
//
// Callers: backend.
//
// Trust boundary: requests are bounded in size and time, and checked against the operation's description. The kernel
// authenticates the peer of each connection; Authorize decides about its requests.
//
// Locks: Server.mu is a leaf.
package api

// The configuration's page has the comments of full.toml, whose parameters of policies are generated, too.
//
//go:generate go run ../../policies/internal/gendocs ../..
//go:generate go run ./describe
//go:generate go run ./document

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/backend/guests"
	"pegasus/backend/history"
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
	History *history.Recorder
	Log     *slog.Logger
}

// Server serves the API.
type Server struct {
	opt     Options
	guests  guests.Requests
	latest  latestState
	handler http.Handler
	spec    *huma.OpenAPI

	running sync.RWMutex // held for reading by each request
	ended   bool         // Serve has returned

	mu      sync.Mutex
	watched bool // a client reads the timeline
}

// New returns a server.
func New(opt Options) *Server {
	s := &Server{opt: opt, guests: opt.Guests}
	s.handler, s.spec = s.newAPI()
	return s
}

// Listen listens on the control socket, and on the TCP address if one is configured.
func (s *Server) Listen() ([]net.Listener, error) {
	socket, err := s.listenSocket()
	if err != nil {
		return nil, err
	}
	all := []net.Listener{socket}
	if at := s.opt.Config.API.Listen; at != "" {
		err := s.checkTCP()
		var l net.Listener
		if err == nil {
			if l, err = net.Listen("tcp", at); err != nil {
				err = fmt.Errorf("[api] listen = %q: %w", at, err)
			}
		}
		if err != nil {
			socket.Close()
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// listenSocket listens on the control socket, accessible to root, to the daemon's user, and to the control group if one
// is configured.
func (s *Server) listenSocket() (*control.Listener, error) {
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

func (s *Server) sendEvents(ctx context.Context, out *stream) error {
	latest, next, stop := s.opt.Journal.Follow()
	defer stop()
	if err := out.begin(); err != nil {
		return err
	}
	for _, e := range latest {
		if err := out.send(e); err != nil {
			return err
		}
	}
	for {
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case e := <-next:
			if err := out.send(e); err != nil {
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

// trace sends the events and decisions of an accelerator's scheduler.
func (s *Server) trace(ctx context.Context, q control.TraceParams, out *stream) error {
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
	if err := out.begin(); err != nil {
		return err
	}
	tick := time.NewTicker(traceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for range len(records) {
				if err := out.send(<-records); err != nil {
					return err
				}
			}
			if err := out.flush(); err != nil {
				return err
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
