// Package real runs Xen's own server, xenstored, on a machine without Xen, for tests against the real server: as a
// tool of domain 0, over its socket, and as any domain, over a page of shared memory.
//
// A small library answers the server's hypervisor calls; it is built when needed (shim/shim.c; it takes gcc). The
// server itself is Debian's.
//
// Callers: tests.
package real

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/xenstore"
)

//go:embed shim/shim.c
var shim []byte

// binaries is Debian's path of the server, of each version of Xen.
const binaries = "/usr/lib/xen-*/bin/xenstored"

// virqPort is the port of the hypervisor's event that some domain has changed.
const virqPort = 70000

// Server is a running xenstored.
type Server struct {
	Version string // of Xen: "4.17"

	dir    string
	binary string
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{}
	said   bytes.Buffer
}

// Start starts a server, with further arguments and with its files in dir. The name of dir has to be short, since a
// socket's may have 108 bytes. The caller stops the server.
func Start(dir string, args ...string) (*Server, error) {
	found, _ := filepath.Glob(binaries)
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no %s: install Debian's xen-utils-4.17 (make deps does)", binaries)
	}
	slices.Sort(found)
	s := &Server{dir: dir, binary: found[len(found)-1], args: args}
	s.Version = filepath.Base(filepath.Dir(filepath.Dir(s.binary)))[len("xen-"):]
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("prepare for xenstored: %w", err)
	}
	if err := s.run(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.binary, err)
	}
	return s, nil
}

// prepare builds the library and creates the files of a host without guests.
func (s *Server) prepare() error {
	source := s.path("shim.c")
	if err := os.WriteFile(source, shim, 0o600); err != nil {
		return err
	}
	build := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", s.path("shim.so"), source)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := os.WriteFile(s.path("xsd_port"), []byte("1"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("page-0"), make([]byte, pageBytes), 0o600); err != nil {
		return err
	}
	return unix.Mkfifo(s.path("events"), 0o600)
}

// run starts the program and blocks until it accepts connections.
func (s *Server) run() error {
	s.cmd = exec.Command(s.binary, append([]string{"--no-fork"}, s.args...)...)
	s.cmd.Env = []string{"LD_PRELOAD=" + s.path("shim.so"), "XENSHIM=" + s.dir, "XENSTORED_RUNDIR=" + s.dir}
	s.cmd.Stderr = &s.said
	s.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func() {
		s.cmd.Wait()
		close(s.ended)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		link, err := s.Socket()(ctx)
		if err == nil {
			return link.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%v: %s", s.cmd.ProcessState, s.said.String())
		case <-ctx.Done():
			s.Stop()
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Stop kills the server. Its store is lost.
func (s *Server) Stop() {
	s.cmd.Process.Kill()
	<-s.ended
}

// Restart starts it again after Stop, as a host's reboot would.
func (s *Server) Restart() error {
	os.Remove(s.path("socket"))
	return s.run()
}

// Socket returns a Dialer as a tool of domain 0.
func (s *Server) Socket() xenstore.Dialer { return xenstore.Socket(s.path("socket")) }

// Domain returns a Dialer as a domain: it introduces the domain, and communicates over its page. A domain has one
// connection; a new one replaces the previous one.
func (s *Server) Domain(dom xenstore.DomID) xenstore.Dialer {
	return func(ctx context.Context) (xenstore.Link, error) {
		r, err := s.openRing(dom)
		if err != nil {
			return xenstore.Link{}, fmt.Errorf("a page of domain %d: %w", dom, err)
		}
		if err := s.introduce(ctx, dom); err != nil {
			r.Close()
			return xenstore.Link{}, err
		}
		return xenstore.Link{ReadWriteCloser: r}, nil
	}
}

func (s *Server) introduce(ctx context.Context, dom xenstore.DomID) error {
	tools, err := xenstore.Dial(ctx, s.Socket())
	if err != nil {
		return err
	}
	defer tools.Close()
	return tools.Introduce(ctx, dom, 1, 1)
}

// Destroy simulates that a domain was destroyed, and Shutdown that it has shut down, as the hypervisor reports it to
// the server.
func (s *Server) Destroy(dom xenstore.DomID) error { return s.change("gone-", dom) }

// Shutdown simulates that a domain has shut down; see Destroy.
func (s *Server) Shutdown(dom xenstore.DomID) error { return s.change("down-", dom) }

func (s *Server) change(kind string, dom xenstore.DomID) error {
	if err := os.WriteFile(s.path(kind+dom.String()), nil, 0o600); err != nil {
		return err
	}
	return s.ring(virqPort)
}

// ring wakes the server.
func (s *Server) ring(port uint32) error {
	f, err := os.OpenFile(s.path("events"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write([]byte{byte(port), byte(port >> 8), byte(port >> 16), byte(port >> 24)})
	return err
}

// path returns a file of the server, by a name used by the shim.
func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// bellOf creates the FIFO that wakes a domain.
func (s *Server) bellOf(dom xenstore.DomID) (*os.File, error) {
	name := s.path("bell-" + strconv.Itoa(int(dom)))
	if err := unix.Mkfifo(name, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
}
