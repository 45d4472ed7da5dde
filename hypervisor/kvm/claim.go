package kvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// claimName is the file in a directory of regions that the daemon which serves it has locked. It has that daemon's PID.
const claimName = ".daemon"

// ErrServed is when another daemon serves a directory of regions: both would start hubs there.
var ErrServed = errors.New("it is served by another daemon")

// Claim makes a directory of regions this process's until release is called or the process ends. While another has it,
// Claim tries again until ctx ends.
func Claim(ctx context.Context, dir string) (release func(), err error) {
	if err := MakeDir(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, claimName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil { // any user that can read the file can lock it
		f.Close()
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			select {
			case <-time.After(20 * time.Millisecond):
				continue
			case <-ctx.Done():
				pid, _ := io.ReadAll(io.LimitReader(f, 32))
				err = fmt.Errorf("regions %s: %w, process %s: end that one, or give this one another directory (regions in [daemon])", dir, ErrServed, strings.TrimSpace(string(pid)))
			}
		}
		f.Close()
		return nil, err
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintln(f, os.Getpid())
	}
	return func() { f.Close() }, nil
}
