package grant

import (
	"encoding/binary"
	"os"
)

// Pages and channels last as long as their files, which another process may keep for a successor. The
// successor finds their contents unchanged.

// File returns the channel's file, for the process that keeps it.
func (c *Channel) File() *os.File { return c.events.file }

// ResumeChannel returns the channel of a kept file, with the given port. The file must be non-blocking. The
// previous owner may have died between an event and its unmasking.
func ResumeChannel(f *os.File, port Port) *Channel {
	c := &Channel{&Events{f}, port}
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { c.Heard(fd, binary.NativeEndian.AppendUint32(nil, uint32(port))) })
	}
	return c
}

// ResumeGrant returns the grant of a kept file, with unknown page numbers.
func ResumeGrant(f *os.File, pages int) *Grant { return &Grant{File: f, Refs: make([]Ref, pages)} }
