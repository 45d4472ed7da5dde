package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/configs"
)

// errNoDaemon is returned if no daemon runs.
var errNoDaemon = errors.New("no daemon runs: start one with `pegasusd` as root, or run a program with `pegasus run -- PROGRAM`, which starts a private one")

// noDaemonIn is errNoDaemon for a directory that the user gave.
type noDaemonIn struct{ dir string }

func (n *noDaemonIn) Error() string {
	return fmt.Sprintf("no daemon runs in %s: start one with `pegasusd --runtime-dir %s` as root, or run a program with `pegasus run --runtime-dir %s -- PROGRAM`, which starts a private one", n.dir, n.dir, n.dir)
}

func (n *noDaemonIn) Unwrap() error { return errNoDaemon }

// dial connects to a daemon: the one of dir, or the host's, or this user's own. It returns the runtime
// directory in which it was found.
func dial(dir string) (*client.Client, string, error) {
	if dir != "" {
		if err := control.CheckRuntimeDir(dir); err != nil {
			return nil, "", err
		}
		c, err := client.Dial(filepath.Join(dir, control.SocketName))
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, "", &refusal{dir, err}
		case err != nil:
			return nil, "", noDaemon(dir, err)
		}
		return c, dir, nil
	}
	private, err := control.PrivateDir()
	if err != nil {
		return nil, "", err
	}
	if os.Getenv(control.RuntimeVariable) == "" {
		c, err := client.Dial(filepath.Join(control.SystemDir, control.SocketName))
		if err == nil {
			return c, control.SystemDir, nil
		}
		if errors.As(err, new(*control.Stranger)) { // another user's program in place of the host's daemon is no reason to fall back silently
			return nil, "", err
		}
		if errors.Is(err, fs.ErrPermission) {
			if c, err := dialPrivate(private); err == nil {
				return c, private, nil
			}
			return nil, "", &refusal{control.SystemDir, err}
		}
	}
	c, err := dialPrivate(private)
	if err != nil {
		if os.Getenv(control.RuntimeVariable) == "" && isAbsent(err) {
			return nil, "", errNoDaemon
		}
		return nil, "", noDaemon(private, err)
	}
	return c, private, nil
}

// refusal is the error for a daemon that denies this user its control socket.
type refusal struct {
	dir   string
	cause error
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the daemon at %s doesn't let this user control it: run as root, or join its control_group (see %s)", r.dir, configs.Path)
}

func (r *refusal) Unwrap() error { return r.cause }

func dialPrivate(dir string) (*client.Client, error) {
	return client.Dial(filepath.Join(dir, control.SocketName))
}

// isAbsent reports whether there is no socket, or one without a listener.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// noDaemon returns the error for the daemon of a directory.
func noDaemon(dir string, err error) error {
	switch {
	case isAbsent(err):
		return &noDaemonIn{dir}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("reach the daemon in %s: %w; set %s to a directory of this user, or unset it", dir, err, control.RuntimeVariable)
	default:
		return fmt.Errorf("reach the daemon in %s: %w", dir, err)
	}
}
