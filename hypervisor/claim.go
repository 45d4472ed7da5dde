package hypervisor

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

// claimName is the lock file in a directory of machines. The daemon that serves the directory holds the lock and
// writes its PID there.
const claimName = ".daemon"

// ErrServed reports that another daemon serves a directory of machines: both would start hubs for them.
var ErrServed = errors.New("it is served by another daemon")

// Claim locks a directory of machines for this process until release is called or the process ends. While another
// process holds the lock, Claim retries until ctx ends. The key is the directory's name in the configuration. The
// caller has checked that no other user can write there.
func Claim(ctx context.Context, dir, key string) (release func(), err error) {
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
				err = fmt.Errorf("%s %s: %w, process %s: end that one, or give this one another directory (%s in [daemon])", key, dir, ErrServed, strings.TrimSpace(string(pid)), key)
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
