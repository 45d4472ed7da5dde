package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"

	"google.golang.org/grpc"

	"pegasus/cluster/kubevirt/hooks"
)

// server serves virt-launcher.
type server struct {
	hooks.UnimplementedInfoServer
	hooks.UnimplementedCallbacksServer
	hook Hook
	log  *slog.Logger
	stop func()
}

// Serve serves the hook at a socket until virt-launcher shuts it down or ctx ends, and removes the socket.
func (h Hook) Serve(ctx context.Context, path string, log *slog.Logger) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a sidecar that was killed
		return fmt.Errorf("socket of the hook: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("socket of the hook: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &server{hook: h, log: log, stop: stop}
	g := grpc.NewServer()
	hooks.RegisterInfoServer(g, s)
	hooks.RegisterCallbacksServer(g, s)
	context.AfterFunc(ctx, g.GracefulStop)
	return g.Serve(l)
}

// Info describes the hook.
func (s *server) Info(context.Context, *hooks.InfoParams) (*hooks.InfoResult, error) {
	return &hooks.InfoResult{Name: "pegasus", Versions: []string{hooks.Version},
		HookPoints: []*hooks.HookPoint{{Name: hooks.OnDefineDomain}, {Name: hooks.ShutdownPoint}}}, nil
}

// OnDefineDomain changes a definition.
func (s *server) OnDefineDomain(_ context.Context, q *hooks.OnDefineDomainParams) (*hooks.OnDefineDomainResult, error) {
	text, err := s.hook.Define(q.GetVmi(), q.GetDomainXML())
	if err != nil {
		s.log.Error("change definition", "err", err)
		return nil, err
	}
	return &hooks.OnDefineDomainResult{DomainXML: text}, nil
}

// Shutdown ends the hook after the answer.
func (s *server) Shutdown(context.Context, *hooks.ShutdownParams) (*hooks.ShutdownResult, error) {
	s.stop()
	return new(hooks.ShutdownResult), nil
}
