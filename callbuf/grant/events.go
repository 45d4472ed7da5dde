package grant

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/internal/ioctl"
)

// Events is a set of event channels that one program uses.
type Events struct {
	file *os.File
}

// OpenEvents returns an Events without channels.
func OpenEvents() (*Events, error) {
	f, err := open("/dev/xen/evtchn", unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &Events{f}, nil
}

// Close closes all channels.
func (e *Events) Close() error { return e.file.Close() }

const (
	ioctlBindInterdomain = 0x00084501
	ioctlBindUnbound     = 0x00044502
	ioctlUnbind          = 0x00044503
	ioctlNotify          = 0x00044504
)

// Offer allocates a channel to which another domain may bind itself.
func (e *Events) Offer(to Domain) (Port, error) {
	arg := [1]uint32{uint32(to)}
	port, err := ioctl.Call(e.file, ioctlBindUnbound, &arg[0])
	if err != nil {
		return 0, fmt.Errorf("event channel for domain %d: %w", to, err)
	}
	return Port(port), nil
}

// Bind allocates the other end of a channel that a domain offers. Pending events of an end are merged into
// one: an event is a hint to check the shared memory, not a message.
func (e *Events) Bind(to Domain, port Port) (Port, error) {
	arg := [2]uint32{uint32(to), uint32(port)}
	local, err := ioctl.Call(e.file, ioctlBindInterdomain, &arg[0])
	if err != nil {
		return 0, fmt.Errorf("bind to event channel %d of domain %d: %w", port, to, err)
	}
	return Port(local), nil
}

// Unbind closes a channel.
func (e *Events) Unbind(p Port) error {
	arg := [1]uint32{uint32(p)}
	_, err := ioctl.Call(e.file, ioctlUnbind, &arg[0])
	return err
}

// Notify sends an event to the other end. It never blocks; events that are still pending are merged.
func (e *Events) Notify(p Port) error {
	arg := [1]uint32{uint32(p)}
	_, err := ioctl.Call(e.file, ioctlNotify, &arg[0])
	return err
}

// Next blocks until an event arrives, and unmasks its channel.
func (e *Events) Next() (Port, error) {
	var b [4]byte
	if _, err := e.file.Read(b[:]); err != nil {
		return 0, err
	}
	if _, err := e.file.Write(b[:]); err != nil { // the channel is masked until then
		return 0, err
	}
	return Port(binary.NativeEndian.Uint32(b[:])), nil
}

// SetDeadline bounds the wait of Next, which then fails with os.ErrDeadlineExceeded.
func (e *Events) SetDeadline(t time.Time) error { return e.file.SetReadDeadline(t) }
