package kvm

import (
	"context"
	"net"
	"path/filepath"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
)

// portsDir is where the sockets of machines' ports lie, in the directory of their regions.
const portsDir = "ports"

// PortPath is the socket by which hub and agent of a region's machine wake each other.
// QEMU serves it.
func PortPath(region string) string {
	return filepath.Join(filepath.Dir(region), portsDir, filepath.Base(region))
}

// MakePorts makes the directory of ports' sockets in that of regions. libvirt, as root, makes
// the sockets for QEMU, so nobody else has to write there.
func MakePorts(regions string) error { return MakeDir(filepath.Join(regions, portsDir)) }

// listenAtPort has the agent wake the hub, if the machine has a port, and the other way round.
func (h Hub) listenAtPort(ctx context.Context) *bell.Port {
	path := PortPath(h.Region)
	open := func() (bell.Conn, error) {
		return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	}
	return bell.Listen(ctx, open, true, func(err error) {
		if err != nil {
			h.Log.Info("nothing wakes the hub: it looks every few milliseconds", "port", path, "why", err)
		} else {
			h.Log.Info("the machine has a port that wakes", "port", path)
		}
	})
}

// words are those of the control area, if there is one.
func (s *session) words() bell.Words {
	if s.control == nil {
		return nil
	}
	return s.control
}

// watchFile has the hub look when a region comes or goes: it may be its own.
func (s *session) watchFile(ctx context.Context) error {
	changes, err := watch(ctx, filepath.Dir(s.hub.Region))
	if err != nil {
		return err
	}
	look := func() {}
	go func() {
		for {
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
			select {
			case s.events <- look:
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

// features are those that a process's segment has beside callbuf.FeatureApart: what it,
// its worker and its agent know to do.
func (s *session) features(p *process, terms uint64) uint64 {
	if !s.port.Live() || s.control == nil || s.control.Bell() == wire.NoBell {
		return 0
	}
	if p.hello.Features&terms&callbuf.FeatureBell == 0 {
		return 0
	}
	return callbuf.FeatureBell | callbuf.FeatureRouse&terms
}

// rouse wakes the workers whose guests have rung. That a guest has is in its segment; whose it was
// the port doesn't say. A worker that sleeps elsewhere is sent a message.
func (s *session) rouse() {
	for _, p := range s.processes {
		switch {
		case p.header == nil:
		case p.features&callbuf.FeatureRouse != 0:
			callbuf.Rouse(p.header)
		case p.features&callbuf.FeatureBell != 0:
			p.pass(ring)
		}
	}
}

// ring is what a process says to its worker when there is a packet.
var ring = []byte{0}
