package grant

import (
	"encoding/binary"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Channel is an event channel with a file of its own: a bell.Conn with rings that need more than writing
// and reading bytes.
type Channel struct {
	events *Events
	port   Port
}

// OfferChannel returns an end to which another domain may bind itself, at Port.
func OfferChannel(to Domain) (*Channel, error) {
	return newChannel(func(e *Events) (Port, error) { return e.Offer(to) })
}

// BindChannel returns the other end of a channel that a domain offers.
func BindChannel(to Domain, port Port) (*Channel, error) {
	return newChannel(func(e *Events) (Port, error) { return e.Bind(to, port) })
}

func newChannel(bind func(*Events) (Port, error)) (*Channel, error) {
	e, err := OpenEvents()
	if err != nil {
		return nil, err
	}
	p, err := bind(e)
	if err != nil {
		e.Close()
		return nil, err
	}
	return &Channel{e, p}, nil
}

// Port returns the channel's number in this domain.
func (c *Channel) Port() Port { return c.port }

// Close closes the channel.
func (c *Channel) Close() error { return c.events.Close() }

// SyscallConn returns the channel's file.
func (c *Channel) SyscallConn() (syscall.RawConn, error) { return c.events.file.SyscallConn() }

// Ring sends an event to the other end.
func (c *Channel) Ring(uintptr) { c.events.Notify(c.port) }

// Heard processes the bytes read from the channel's file, and unmasks the channel.
func (c *Channel) Heard(fd uintptr, said []byte) error {
	if len(said)%4 != 0 {
		return errors.New("event channel: half an event")
	}
	for ; len(said) > 0; said = said[4:] {
		if Port(binary.NativeEndian.Uint32(said)) == c.port {
			if _, err := unix.Write(int(fd), said[:4]); err != nil {
				return err
			}
		}
	}
	return nil
}
