package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer identifies the process at the other end of a unix socket, as the kernel reports it. Of a TCP connection it has the
// address only.
type Peer struct {
	PID      int
	UID, GID int
	Groups   []int  // supplementary
	Remote   string // address of a TCP connection, with the role of its token; empty: a unix socket
}

// PeerOf returns the kernel's credentials of the connection's peer.
func PeerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var p Peer
	var credErr error
	err = raw.Control(func(fd uintptr) { p, credErr = peerOfFD(int(fd)) })
	return p, errors.Join(err, credErr)
}

func peerOfFD(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	p := Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}
	p.Groups, err = peerGroups(fd)
	return p, err
}

// Member reports whether the peer has the group, as primary or supplementary.
func (p Peer) Member(gid int) bool {
	if p.GID == gid {
		return true
	}
	for _, g := range p.Groups {
		if g == gid {
			return true
		}
	}
	return false
}

// peerGroups reads SO_PEERGROUPS, an array of gid_t. The kernel reports its length with ERANGE.
func peerGroups(fd int) ([]int, error) {
	buf := make([]byte, 4*64)
	for {
		n := uint32(len(buf))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)), 0)
		switch {
		case errno == unix.ERANGE && int(n) > len(buf):
			buf = make([]byte, n)
			continue
		case errno == unix.ENOPROTOOPT || errno == unix.ENODATA:
			return nil, nil
		case errno != 0:
			return nil, fmt.Errorf("peer groups: %w", errno)
		}
		var groups []int
		for i := 0; i+4 <= int(n); i += 4 {
			groups = append(groups, int(binary.NativeEndian.Uint32(buf[i:])))
		}
		return groups, nil
	}
}
