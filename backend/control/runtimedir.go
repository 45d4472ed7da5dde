package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// SystemDir is the runtime directory of the daemon that root runs for the host.
const SystemDir = "/run/pegasus"

// SocketName is the control socket within a runtime directory.
const SocketName = "control.sock"

// OnceMark is a file in the runtime directory of a daemon that removes that directory, with all in it, when it ends.
const OnceMark = "once"

// DaemonLock is a file in the runtime directory. The daemon of that directory holds its lock (flock) until it ends.
const DaemonLock = "daemon.lock"

// PrivateLog is the log of a private daemon, within its runtime directory.
const PrivateLog = "pegasusd.log"

// RuntimeVariable is the environment variable that names the runtime directory of a user's own daemon.
const RuntimeVariable = "PEGASUS_RUNTIME_DIR"

// PrivateDir returns the runtime directory of this user's own daemon: $PEGASUS_RUNTIME_DIR, else
// $XDG_RUNTIME_DIR/pegasus unless that variable names another user's directory, as after su, else /tmp/pegasus-UID. It
// returns an error for a value of PEGASUS_RUNTIME_DIR that cannot be a runtime directory.
func PrivateDir() (string, error) {
	if dir := os.Getenv(RuntimeVariable); dir != "" {
		return dir, checkVariable(dir)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && !another(dir) { // its specification ignores a relative path
		return filepath.Join(dir, "pegasus"), nil
	}
	return filepath.Join("/tmp", "pegasus-"+strconv.Itoa(os.Getuid())), nil
}

// another reports whether a directory is another user's, or out of this user's reach.
func another(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

// checkVariable returns an error for a value of RuntimeVariable that cannot be a runtime directory. A directory that
// does not exist is valid: the daemon makes it.
func checkVariable(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case !filepath.IsAbs(dir) || len(dir) > maxRuntimeDir || err == nil && !info.IsDir():
		return fmt.Errorf("%s=%.*q: want the absolute path of a directory, of at most %d bytes", RuntimeVariable, 2*maxRuntimeDir, dir, maxRuntimeDir)
	default:
		return nil
	}
}

// maxRuntimeDir leaves room for the names of sockets below it.
const maxRuntimeDir = MaxSocketPath - len("/workers/9999999999.sock")

// CheckRuntimeDir returns an error if the paths of sockets in the directory would be too long.
func CheckRuntimeDir(dir string) error {
	if len(dir) > maxRuntimeDir {
		return fmt.Errorf("runtime directory %s: its path has %d bytes; with more than %d the paths of sockets in it are too long", dir, len(dir), maxRuntimeDir)
	}
	return nil
}

// Stranger is the error for a socket or directory of a user that is neither root
// nor the caller: its owner could pose as the daemon.
type Stranger struct {
	What string
	UID  int
}

func (s *Stranger) Error() string {
	return fmt.Sprintf("%s belongs to user %d, not to root or to user %d, the caller; give the --runtime-dir or PEGASUS_RUNTIME_DIR of a daemon of root or of this user",
		s.What, s.UID, os.Geteuid())
}

// Trusted reports whether the daemon may run as this user: root, or the caller's.
func Trusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// CheckOwner returns *Stranger if another user owns the directory, and nil if the
// directory doesn't exist.
func CheckOwner(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !Trusted(int(st.Uid)) {
		return &Stranger{What: "the directory " + dir, UID: int(st.Uid)}
	}
	return nil
}

// MakeRuntimeDir makes dir if it does not exist, and rejects one that another user could have prepared: the runtime
// directory must belong to the daemon's user and be no link, even in /tmp.
func MakeRuntimeDir(dir string, mode os.FileMode) error {
	if err := CheckRuntimeDir(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !os.IsExist(err) {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("runtime directory: %w; set PEGASUS_RUNTIME_DIR to one that can be made", err)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("runtime directory %s is not a directory; remove it or set PEGASUS_RUNTIME_DIR", dir)
	case ok && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("runtime directory %s belongs to user %d, not to us (%d); set PEGASUS_RUNTIME_DIR", dir, st.Uid, os.Geteuid())
	}
	if info.Mode().Perm() != mode {
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("runtime directory: %w", err)
		}
	}
	return nil
}
