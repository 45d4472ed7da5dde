package kvm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Keeper ensures that every region in a directory has a hub. A region is created before its machine starts, and
// removed after its end; its name is its domain's. Hubs outlive the daemon that started them: the next daemon's
// Keeper finds their regions locked.
type Keeper struct {
	Dir string
	// Hub returns the command that becomes the hub of a region with the given file and domain.
	Hub func(region, domain string) []string
	// Valid returns an error for an invalid domain name.
	Valid func(domain string) error
	// Off reports whether a machine is confirmed to be off. A region is then removed if its removal at the machine's
	// end was missed. Nil: the machines' states are unavailable.
	Off func(domain string) bool
	Log *slog.Logger

	left map[string]leftover // by path
}

// lookEvery is the interval of checks without an event: a hub of another daemon may have died. A hub started here is
// restarted after startAgain, which bounds the attempts for a region that can't be served.
const (
	lookEvery  = 2 * time.Second
	startAgain = 500 * time.Millisecond
)

// Run starts hubs until ctx ends. The hubs continue.
func (k Keeper) Run(ctx context.Context) error {
	if err := MakeDir(k.Dir); err != nil {
		return err
	}
	changes, err := watch(ctx, k.Dir)
	if err != nil {
		return err
	}
	k.left = map[string]leftover{}
	running, ended := map[string]bool{}, make(chan string)
	for {
		k.look(ctx, running, ended)
		select {
		case <-changes:
		case path := <-ended:
			delete(running, path)
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// look starts the missing hubs.
func (k Keeper) look(ctx context.Context, running map[string]bool, ended chan<- string) {
	entries, err := os.ReadDir(k.Dir)
	if err != nil {
		k.Log.Warn("look for regions", "err", err)
		return
	}
	for _, e := range entries {
		path := filepath.Join(k.Dir, e.Name())
		k.sweep(path, e)
		if running[path] || !e.Type().IsRegular() || k.Valid(e.Name()) != nil || unfinished(e) || taken(path) {
			continue
		}
		cmd, err := k.start(path, e.Name())
		if err != nil {
			k.Log.Error("start a hub", "region", path, "err", err)
			continue
		}
		running[path] = true
		go func() {
			err := cmd.Wait()
			k.Log.Info("a hub has ended", "region", path, "err", err)
			time.Sleep(startAgain)
			select {
			case ended <- path:
			case <-ctx.Done():
			}
		}()
	}
}

// unfinished reports whether a file is an unfinished region of an earlier release, which called it NAME.new.
func unfinished(e os.DirEntry) bool {
	info, err := e.Info()
	return strings.HasSuffix(e.Name(), ".new") && (err != nil || info.Mode().Perm() == 0o600)
}

func (k Keeper) start(path, domain string) (*exec.Cmd, error) {
	command := k.Hub(path, domain)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// taken reports whether a region has a hub, or is gone.
func taken(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return true
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// watch returns a channel of changes to a directory's entries.
func watch(ctx context.Context, dir string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		f.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { f.Close() })
	changes := make(chan struct{}, 1)
	go func() {
		for buf := make([]byte, 4096); ; {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}
