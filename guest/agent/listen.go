package agent

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// listen returns systemd's socket, if it has passed one, or creates one with access for every user of the machine, or
// for a group. The new socket replaces the previous agent's atomically, so that a program always finds one, and waits.
func listen(sockets []*os.File, path, group string) (*net.UnixListener, error) {
	if len(sockets) > 0 {
		return listenerOf(sockets)
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

// permit gives a group access to a socket; empty: all users.
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

// listenerOf returns the listener on the socket that systemd has passed.
func listenerOf(sockets []*os.File) (*net.UnixListener, error) {
	if len(sockets) != 1 {
		for _, f := range sockets {
			f.Close()
		}
		return nil, fmt.Errorf("systemd gave %d sockets: want one, of ListenSequentialPacket", len(sockets))
	}
	defer sockets[0].Close()
	l, err := net.FileListener(sockets[0])
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd gave: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok && u.Addr().Network() == "unixpacket" {
		return u, nil
	}
	l.Close()
	return nil, fmt.Errorf("systemd gave a socket of kind %s: want ListenSequentialPacket", l.Addr().Network())
}
