package agent

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// listen has the socket that systemd made, or makes one, which every user of the machine may
// use, or a group. It takes the place of one that an agent before has left, so that a program always
// finds one there, and waits.
func listen(path, group string) (*net.UnixListener, error) {
	if l, err := inherit(); l != nil || err != nil {
		return l, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	making := path + ".new"
	os.Remove(making)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: making, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = permit(making, group); err == nil {
		err = os.Rename(making, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// permit lets a group use a socket; empty: everybody.
func permit(path, group string) error {
	if group == "" {
		return os.Chmod(path, 0o666)
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	if err := os.Chown(path, -1, id); err != nil {
		return err
	}
	return os.Chmod(path, 0o660)
}

// firstInherited is the descriptor from which on systemd's are; sd_listen_fds(3).
const firstInherited = 3

// inherit takes the socket from systemd; nil if it gave none to this process.
func inherit() (*net.UnixListener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	os.Unsetenv("LISTEN_PID") // not for what we start
	os.Unsetenv("LISTEN_FDS")
	if count != "1" {
		return nil, fmt.Errorf("systemd gave %s sockets: want one, of ListenSequentialPacket", count)
	}
	unix.CloseOnExec(firstInherited)
	f := os.NewFile(firstInherited, "socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd gave: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok && u.Addr().Network() == "unixpacket" {
		return u, nil
	}
	l.Close()
	return nil, fmt.Errorf("systemd gave a socket of kind %s: want ListenSequentialPacket", l.Addr().Network())
}

// notify tells systemd how we are; sd_notify(3). Who else started us doesn't ask.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.Dial("unixgram", path)
	if err != nil {
		return // it would notice itself
	}
	defer c.Close()
	c.Write([]byte(state))
}
