package grant

import (
	"encoding/binary"
	"os"
)

// Pages and channels last as long as their files, which another process may keep for one that is
// to come. What that finds in them is what was there.

// File is the channel's, for who keeps it.
func (c *Channel) File() *os.File { return c.events.file }

// ResumeChannel is a channel whose file was kept, and which has that port. The file has to be one that doesn't
// block. Who had it may have died between an event and letting the next one come.
func ResumeChannel(f *os.File, port Port) *Channel {
	c := &Channel{&Events{f}, port}
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { c.Heard(fd, binary.NativeEndian.AppendUint32(nil, uint32(port))) })
	}
	return c
}

// ResumeGrant are the pages of a grant whose file was kept; their numbers aren't known here.
func ResumeGrant(f *os.File, pages int) *Grant { return &Grant{File: f, Refs: make([]Ref, pages)} }
