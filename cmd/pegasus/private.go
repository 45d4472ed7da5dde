package main

import (
	"bufio"
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

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// startTime is a daemon's time limit from start to ready.
const startTime = 20 * time.Second

// startPrivate returns a connection to the private daemon of dir, which it
// starts if none runs. One process at a time decides: the others wait for it.
func startPrivate(dir, config string) (*client.Client, error) {
	if config != "" {
		abs, err := filepath.Abs(config)
		if err != nil {
			return nil, err
		}
		config = abs
	}
	if err := control.MakeRuntimeDir(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(dir, "start.lock"), 3*startTime)
	if err != nil {
		return nil, err
	}
	defer unlock()
	path := filepath.Join(dir, control.SocketName)
	daemon, err := client.Dial(path)
	if errors.As(err, new(*control.Stranger)) {
		return nil, err
	}
	if err == nil {
		daemon, err = reuse(daemon, config)
		if daemon != nil || err != nil {
			return daemon, err
		}
	}
	if hosts(dir) {
		return awaitHosts(dir, path)
	}
	sweepOwn(dir)
	if err := launch(dir, config); err != nil {
		return nil, err
	}
	return dialStarted(path)
}

// dialStarted connects to a daemon that has just been ready.
func dialStarted(path string) (*client.Client, error) {
	daemon, err := client.Dial(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", errVanished, err)
	}
	return daemon, err
}

// ownLinger is the time for which a program's own daemon waits for that program.
const ownLinger = "3s"

// ownPrefix begins the names of the runtime directories of programs' own daemons.
const ownPrefix = "own-"

// startOwn starts a daemon in a new runtime directory below the user's. The daemon ends after the last program and
// removes the directory.
func startOwn(config string) (daemon *client.Client, dir string, err error) {
	if config != "" {
		if config, err = filepath.Abs(config); err != nil {
			return nil, "", err
		}
	}
	base, err := control.PrivateDir()
	if err != nil {
		return nil, "", err
	}
	if _, err := os.Lstat(filepath.Join(base, control.OnceMark)); err == nil { // it is removed when another program ends
		base = filepath.Dir(filepath.Clean(base))
	}
	if hosts(base) {
		return nil, "", fmt.Errorf("--private: %s is the directory of the host's daemon; unset PEGASUS_RUNTIME_DIR, or name a directory of this user", base)
	}
	if err := control.MakeRuntimeDir(base, 0o700); err != nil {
		return nil, "", err
	}
	sweepOwn(base)
	if dir, err = os.MkdirTemp(base, ownPrefix); err != nil {
		return nil, "", err
	}
	if err = control.CheckRuntimeDir(dir); err == nil {
		err = launch(dir, config, "--once", "--linger", ownLinger)
	}
	if err != nil {
		if !errors.Is(err, errSilent) { // else the error names the log there
			os.RemoveAll(dir)
		}
		return nil, "", err
	}
	daemon, err = dialStarted(filepath.Join(dir, control.SocketName))
	return daemon, dir, err
}

// sweepOwn removes the runtime directories below base that daemons of programs' own left behind because they were killed.
func sweepOwn(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), ownPrefix) {
			removeAbandoned(filepath.Join(base, e.Name()))
		}
	}
}

// removeAbandoned removes a runtime directory of this user's if its daemon has gone: the lock of DaemonLock is free.
// It keeps a directory that changed within startTime, because a daemon makes that file just before it takes the lock,
// and a directory that has other files without that file or without OnceMark.
func removeAbandoned(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < startTime || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return
	}
	if _, err := os.Lstat(filepath.Join(dir, control.OnceMark)); err != nil {
		removeUnstarted(dir)
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, control.DaemonLock), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		os.RemoveAll(dir)
	}
}

// removeUnstarted removes the runtime directory of a program that was ended before its daemon started: the directory is
// empty but for an empty log. A log with text stays for its reader.
func removeUnstarted(dir string) {
	log := filepath.Join(dir, control.PrivateLog)
	if info, err := os.Lstat(log); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 1 {
			os.Remove(log)
		}
	}
	os.Remove(dir) // fails for a directory that is not empty
}

// errVanished is returned if a daemon that was ready has ended before the first request.
var errVanished = errors.New("the private daemon has ended")

// hosts reports whether a directory belongs to the host's daemon, which keeps its state there: private daemons keep none.
func hosts(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "state.json"))
	return err == nil
}

// awaitHosts waits for the host's daemon, which may be about to start again.
func awaitHosts(dir, path string) (*client.Client, error) {
	for start := time.Now(); time.Since(start) < startTime; time.Sleep(50 * time.Millisecond) {
		if daemon, err := client.Dial(path); err == nil {
			return daemon, nil
		}
	}
	return nil, fmt.Errorf("the host's daemon keeps its state in %s, and did not run for %v: start it with `pegasusd --runtime-dir %s`, or give another --runtime-dir", dir, startTime, dir)
}

// lock holds a file's lock until unlock is called. It fails after patience: a process that starts a daemon holds the
// lock for startTime at most, unless a signal has stopped the process.
func lock(path string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EWOULDBLOCK) && time.Now().Before(end):
			continue
		}
		f.Close()
		return nil, fmt.Errorf("lock %s: %w: another process has been starting the private daemon for %v; is it stopped? (fuser %s)", path, err, patience, path)
	}
}

// reuse makes the running daemon adopt config. It returns nil and no error if the daemon was idle under
// another configuration and has ended.
func reuse(daemon *client.Client, config string) (*client.Client, error) {
	if config == "" {
		return daemon, nil
	}
	ctx := context.Background()
	s, err := daemon.Status(ctx)
	if err != nil {
		daemon.Close()
		return nil, nil // it was just ending
	}
	if s.Config == config {
		if _, err := daemon.Reload(ctx); err != nil {
			daemon.Close()
			return nil, err
		}
		return daemon, nil
	}
	err = shutDown(daemon, control.ShutdownParams{IfIdle: true})
	var refused *control.Error
	if errors.As(err, &refused) {
		was := "its built-in defaults"
		if s.Config != "" {
			was = s.Config
		}
		return nil, fmt.Errorf("--config %s: a daemon with %s is in use (%s, %s); wait for them, or leave out --config",
			config, was, control.Count(s.Guests, "guest"), control.Count(s.Holders, "program"))
	}
	return nil, err
}

// launch starts the daemon outside this process's session and waits until it is ready, or has reported why it
// failed.
func launch(dir, config string, more ...string) error {
	daemon, err := findDaemon()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	logPath := filepath.Join(dir, control.PrivateLog)
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		w.Close()
		return err
	}
	defer log.Close()
	args := append([]string{"--private", "--runtime-dir", dir, "--ready-fd", "3"}, more...)
	if config != "" {
		args = append(args, "--config", config)
	}
	cmd := exec.Command(daemon, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start the private daemon: %w", err)
	}
	defer cmd.Process.Release()
	return awaitReady(r, logPath)
}

// errSilent is a private daemon that failed to start without giving the cause.
var errSilent = errors.New("the private daemon")

func awaitReady(r *os.File, logPath string) error {
	r.SetReadDeadline(time.Now().Add(startTime))
	text, err := io.ReadAll(bufio.NewReader(io.LimitReader(r, 64<<10)))
	said := strings.TrimSpace(string(text))
	switch {
	case said == "ready":
		return nil
	case err != nil:
		return fmt.Errorf("%w: not ready in %v; its log is %s", errSilent, startTime, logPath)
	case said == "":
		return fmt.Errorf("%w: ended at once; its log is %s", errSilent, logPath)
	default:
		return errors.New(said)
	}
}

// findDaemon returns the pegasusd beside this command, else the one in $PATH.
func findDaemon() (string, error) {
	if path := filepath.Join(ownDir(), "pegasusd"); ownDir() != "" {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("pegasusd")
	if err != nil {
		return "", fmt.Errorf("pegasusd is neither in %s nor in $PATH: run `make`, or install it beside pegasus", ownDir())
	}
	return filepath.Abs(path)
}
