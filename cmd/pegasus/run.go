package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// guestFlags select the daemon and domain of a program.
type guestFlags struct {
	domain, config, policy string
	credits                int
	private                bool
}

func runProgram(c *call) action {
	var g guestFlags
	c.flags.StringVar(&g.domain, "domain", "default", "be a guest of the domain `name`")
	c.flags.IntVar(&g.credits, "credits", 0, "give the domain `n` credits, 1 to 65535")
	c.flags.StringVar(&g.config, "config", "", "the private daemon's configuration `file`")
	c.flags.StringVar(&g.policy, "policy", "", "switch the daemon's accelerators to the policy `name`")
	c.flags.BoolVar(&g.private, "private", false, "start a daemon for this program alone")
	return c.takes(1, -1, func(operands []string) error {
		if g.credits < 0 || g.credits > 65535 || (g.credits == 0 && c.given("credits")) {
			return usagef("--credits %d: must be 1 to 65535", g.credits)
		}
		if g.private && c.dir != "" {
			return usagef("--private: the daemon's runtime directory is a new one; leave out --runtime-dir")
		}
		program, err := lookProgram(operands[0])
		if err != nil {
			return err
		}
		library, err := findLibrary()
		if err != nil {
			return err
		}
		h, err := g.hold(c)
		if err != nil {
			return err
		}
		err = syscall.Exec(program, operands, guestEnvironment(os.Environ(), h, library))
		return &exit{exitNotRun, fmt.Errorf("run %s: %w", program, err)}
	})
}

func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", &exit{exitNotRun, err}
	default:
		return "", &exit{exitMissing, fmt.Errorf("%w; give a path or a command in $PATH", err)}
	}
}

// held is the data by which a program finds its domain.
type held struct {
	socket string // of the domain
	own    string // the runtime directory of the program's own daemon; empty: the daemon serves others, too
}

// hold makes the domain exist for as long as this process lives, across execve.
func (g guestFlags) hold(c *call) (held, error) {
	for end := time.Now().Add(startTime); ; time.Sleep(retryEvery) {
		h, err := g.holdOnce(c)
		if !ending(err) {
			return h, err
		}
		if time.Now().After(end) {
			return held{}, fmt.Errorf("no daemon served the program in %v, the last one ended: %w", startTime, err)
		}
	}
}

// retryEvery is the delay after a daemon that has ended, before the next one is contacted.
const retryEvery = 20 * time.Millisecond

// ending reports whether an error is caused by a daemon that ends or has just ended, so that another one can
// be found or started. The requests of run may be repeated.
func ending(err error) bool {
	var refused *control.Error
	if errors.As(err, &refused) {
		return refused.Code == control.CodeEnding
	}
	for _, gone := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET, syscall.ECONNREFUSED, errVanished, client.ErrGone} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// holdOnce is hold with the current daemon.
func (g guestFlags) holdOnce(c *call) (held, error) {
	daemon, own, err := g.daemon(c)
	if err != nil {
		if path := usableSocket(cmp.Or(c.dir, control.SystemDir), g.domain); errors.Is(err, fs.ErrPermission) && g == (guestFlags{domain: g.domain}) && path != "" {
			return held{socket: path}, nil
		}
		return held{}, err
	}
	defer daemon.Close()
	ctx := context.Background()
	if g.policy != "" {
		if _, err := daemon.SwitchPolicy(ctx, control.PolicyParams{Name: g.policy}); err != nil {
			return held{}, err
		}
	}
	h, err := daemon.Hold(ctx, control.HoldParams{Domain: g.domain, Credits: g.credits})
	return held{h.Socket, own}, err
}

// usableSocket returns the socket of a domain of the daemon of a directory, if this user may use it: a guest need
// not control the daemon. A directory of another user has none: its owner could listen in the daemon's place.
func usableSocket(dir, domain string) string {
	domains := filepath.Join(dir, "domains")
	path := filepath.Join(domains, domain, "sock")
	if errors.Join(control.CheckOwner(dir), control.CheckOwner(domains)) != nil || unix.Access(path, unix.W_OK) != nil {
		return ""
	}
	return path
}

// daemon connects to the daemon to be a guest of, and starts a private one if there is none. own is the
// runtime directory of a daemon that serves only this program.
func (g guestFlags) daemon(c *call) (daemon *client.Client, own string, err error) {
	if g.private {
		return startOwn(g.config)
	}
	daemon, err = g.sharedDaemon(c)
	return daemon, "", err
}

// sharedDaemon is daemon for a program that shares its daemon with others.
func (g guestFlags) sharedDaemon(c *call) (*client.Client, error) {
	if g.config == "" {
		daemon, _, err := dial(c.dir)
		refused := c.dir == "" && errors.As(err, new(*refusal)) && usableSocket(control.SystemDir, g.domain) == ""
		if err == nil || !errors.Is(err, errNoDaemon) && !refused {
			return daemon, err
		}
		if refused {
			fmt.Fprintf(c.err, "pegasus run: the host's daemon doesn't admit this user to domain %q (its socket_group, or the daemon's control_group): a private daemon serves the program\n", g.domain)
		}
	}
	dir := c.dir
	if dir == "" {
		var err error
		if dir, err = control.PrivateDir(); err != nil {
			return nil, err
		}
	}
	return startPrivate(dir, g.config)
}

// guestEnvironment returns env with the variables by which programs find our libcuda.so.1 and their domain,
// and with the runtime directory of the program's own daemon, so that `pegasus` in the program finds that
// daemon.
func guestEnvironment(env []string, h held, library string) []string {
	const search, socket, runtime = "LD_LIBRARY_PATH=", "PEGASUS_SOCKET=", "PEGASUS_RUNTIME_DIR="
	out := []string{socket + h.socket}
	if h.own != "" {
		out = append(out, runtime+h.own)
	}
	path := filepath.Dir(library)
	for _, e := range env {
		switch {
		case strings.HasPrefix(e, socket):
		case h.own != "" && strings.HasPrefix(e, runtime):
		case strings.HasPrefix(e, search):
			if rest := strings.TrimPrefix(e, search); rest != "" {
				path += ":" + rest
			}
		default:
			out = append(out, e)
		}
	}
	return append(out, search+path)
}
