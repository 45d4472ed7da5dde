package xenstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"pegasus/xenstore/wire"
)

// conn is one connection. One goroutine reads it and one writes it; neither blocks on anything but the link, so the
// client keeps reading while the server waits for it to read. mu guards the fields below it.
type conn struct {
	link  Link
	event func(path, token string)
	wake  chan struct{} // the outbox has something
	dead  chan struct{} // closed when err is set
	ends  sync.WaitGroup
	err   error // why the connection ended; see dead

	mu      sync.Mutex
	ended   bool
	last    uint32           // the last id; 0 isn't used
	pending map[uint32]*call // calls without an answer, sent or not
	outbox  []*call          // unsent calls, a subset of pending
}

// call is a request in flight.
type call struct {
	packet wire.Packet
	path   string              // for errors
	undo   func(*conn, []byte) // undoes an abandoned request; may be nil
	did    func()              // called by the reader on success, before the outcome is published; may be nil

	// Under the connection's lock, until there is an outcome.
	sent     bool
	answered bool // the outcome is about to be set
	gone     bool // abandoned by its caller

	done  chan struct{} // closed when there is an outcome
	reply []byte
	err   error
}

// connect starts the goroutines that serve a link.
func connect(link Link, event func(path, token string)) *conn {
	c := &conn{
		link: link, event: event, wake: make(chan struct{}, 1), dead: make(chan struct{}),
		pending: map[uint32]*call{},
	}
	c.ends.Go(c.read)
	c.ends.Go(c.write)
	return c
}

// patience bounds the wait for a closed device.
const patience = 100 * time.Millisecond

// wait blocks until all goroutines have ended, which they do after fail. Only a device's may take longer, as they can
// be within the kernel until XenStore answers: wait abandons those after patience, and nothing else uses their state.
func (c *conn) wait() {
	if !c.link.Device {
		c.ends.Wait()
		return
	}
	ended := make(chan struct{})
	go func() {
		c.ends.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
	}
}

// do sends a request and blocks until the answer. When ctx ends first, an unsent request is dropped, and a sent one
// is undone when its answer comes.
func (c *conn) do(ctx context.Context, call *call) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, call.wrap(err)
	}
	if why := c.unable(call.packet); why != "" {
		return nil, call.wrap(fmt.Errorf("%w: %s", syscall.ENOTSUP, why))
	}
	call.done, call.sent, call.answered = make(chan struct{}), false, false // the call may have been made on an earlier connection
	c.send(call)
	select {
	case <-call.done:
	case <-ctx.Done():
		if c.leave(call) {
			return nil, call.wrap(ctx.Err())
		}
		<-call.done
	}
	return call.reply, call.wrap(call.err)
}

// unable returns why a device doesn't support a request that would have another effect there; "" if it does.
func (c *conn) unable(p wire.Packet) string {
	switch {
	case !c.link.Device:
	case p.Type == wire.ResetWatches:
		return "the kernel's own watches would go, too; close one's own"
	case p.Type == wire.Watch && len(wire.Split(p.Body)) > 2:
		return "the kernel doesn't pass on how deep to watch; watch all below, and leave out what is deeper"
	}
	return ""
}

// post sends a request and ignores the answer.
func (c *conn) post(typ wire.Type, tx uint32, body []byte) {
	c.send(&call{packet: wire.Packet{Type: typ, Tx: tx, Body: body}, done: make(chan struct{}), gone: true})
}

// send puts a call into the outbox.
func (c *conn) send(call *call) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		call.finish(nil, fmt.Errorf("%w (%w)", c.err, errUnsent))
		return
	}
	for c.last++; c.last == 0 || c.pending[c.last] != nil; c.last++ {
	}
	call.packet.ID = c.last
	c.pending[c.last] = call
	c.outbox = append(c.outbox, call)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// leave abandons a call, and reports false if it has just been answered.
func (c *conn) leave(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.answered {
		return false
	}
	call.gone = true
	if !call.sent { // a stuck server must not make the client keep abandoned calls
		delete(c.pending, call.packet.ID)
		if i := slices.Index(c.outbox, call); i >= 0 {
			c.outbox = slices.Delete(c.outbox, i, i+1)
		}
	}
	return true
}

// finish sets the outcome. It is called once, by the goroutine that took the call out of pending.
func (call *call) finish(reply []byte, err error) {
	call.reply, call.err = reply, err
	close(call.done)
}

// wrap adds the request to an error.
func (call *call) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &Error{call.packet.Type, call.path, err}
}

// fail ends the connection, if it hasn't ended yet, and all its calls. The calls end first: closing a device takes as
// long as a Write that is within the kernel.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended, c.err = true, err
	if c.link.Device {
		c.ends.Add(1) // for its Close, before any call of wait
	}
	pending := c.pending
	c.pending, c.outbox = nil, nil
	for _, call := range pending {
		call.answered = true
	}
	c.mu.Unlock()
	close(c.dead)
	for _, call := range pending {
		if call.sent {
			call.finish(nil, err)
		} else {
			call.finish(nil, fmt.Errorf("%w (%w)", err, errUnsent))
		}
	}
	if c.link.Device {
		go func() {
			defer c.ends.Done()
			c.link.Close()
		}()
	} else {
		c.link.Close()
	}
}

// take removes calls from the outbox, which count as sent then: all of them, or one for a device.
func (c *conn) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var calls []*call
	for len(c.outbox) > 0 && (len(calls) == 0 || !c.link.Device) {
		call := c.outbox[0]
		c.outbox = c.outbox[1:]
		if c.pending[call.packet.ID] == call {
			call.sent = true
			calls = append(calls, call)
		}
	}
	return calls
}

// write sends the calls in the outbox.
func (c *conn) write() {
	for {
		select {
		case <-c.wake:
		case <-c.dead:
			return
		}
		for calls := c.take(); len(calls) > 0; calls = c.take() {
			if c.link.Device {
				c.writeDevice(calls[0])
			} else {
				c.writeAll(calls)
			}
		}
	}
}

func (c *conn) writeAll(calls []*call) {
	var b []byte
	for _, call := range calls {
		b = call.packet.Append(b)
	}
	if _, err := c.link.Write(b); err != nil {
		c.fail(fmt.Errorf("%w: %w", ErrLost, err))
	}
}

// deviceMax is the longest packet that a kernel's device accepts, header included.
const deviceMax = 4096

// writeDevice sends one packet and blocks until its answer. Linux keeps the packet of a file in one buffer until it
// is passed on: another packet before the answer would overwrite it.
func (c *conn) writeDevice(call *call) {
	b := call.packet.Append(nil)
	if len(b) > deviceMax {
		c.give(call, tooLong(len(call.packet.Body), deviceMax-wire.HeaderBytes))
	} else if _, err := c.link.Write(b); err != nil {
		c.refused(call, err)
	}
	select {
	case <-call.done:
	case <-c.dead:
	}
}

// refused handles a packet that the device rejected. An errno is the answer to the packet, which the device has
// dropped; any other error is the end of the device itself.
func (c *conn) refused(call *call, err error) {
	var errno syscall.Errno
	if errors.Is(err, os.ErrClosed) || !errors.As(err, &errno) {
		c.fail(fmt.Errorf("%w: %w", ErrLost, err))
		return
	}
	c.give(call, errno)
}

// give sets a call's outcome, if it has none yet.
func (c *conn) give(call *call, err error) {
	c.mu.Lock()
	mine := c.pending[call.packet.ID] == call
	if mine {
		c.settle(call)
	}
	c.mu.Unlock()
	if mine {
		call.finish(nil, err)
	}
}

// settle takes a call out of pending. The caller holds the lock and sets the outcome.
func (c *conn) settle(call *call) {
	call.answered = true
	delete(c.pending, call.packet.ID)
}

// read receives answers and events.
func (c *conn) read() {
	var parser wire.Parser
	b := make([]byte, 2*wire.BodyMax)
	for {
		n, err := c.link.Read(b)
		parser.Feed(b[:n])
		for {
			packet, ok, bad := parser.Next()
			if bad == nil && ok {
				bad = c.receive(packet)
			}
			if bad != nil {
				c.fail(fmt.Errorf("%w: the server breaks the protocol: %w", ErrLost, bad))
				return
			}
			if !ok {
				break
			}
		}
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
	}
}

// receive dispatches a packet to its call or watch.
func (c *conn) receive(p wire.Packet) error {
	if p.Type == wire.WatchEvent { // its other header fields are undefined
		parts := wire.Split(p.Body)
		if len(parts) < 2 {
			return fmt.Errorf("an event of %q", p.Body)
		}
		c.event(parts[0], parts[1])
		return nil
	}
	call, err := c.match(p)
	if call == nil || err != nil {
		return err
	}
	if p.Type == wire.Error {
		call.finish(nil, wire.Errno(wire.Text(p.Body)))
		return nil
	}
	switch {
	case call.gone && call.undo != nil:
		call.undo(c, p.Body)
	case !call.gone && call.did != nil:
		call.did()
	}
	call.finish(p.Body, nil)
	return nil
}

// match takes the call that p answers out of pending.
func (c *conn) match(p wire.Packet) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, nil
	}
	call := c.pending[p.ID]
	if call == nil && p.ID == 0 && c.link.Device {
		call = c.oldest(p.Type)
	}
	if call == nil || !call.sent {
		return nil, fmt.Errorf("an answer (%s, id %d) to nothing that was asked", p.Type, p.ID)
	}
	if p.Type != wire.Error && p.Type != call.packet.Type {
		return nil, fmt.Errorf("%s answered by %s", call.packet.Type, p.Type)
	}
	c.settle(call)
	return call, nil
}

// oldest returns the pending call of a type that was sent first. Older kernels answer requests for watches
// themselves, in order and without their id.
func (c *conn) oldest(typ wire.Type) (first *call) {
	for _, call := range c.pending {
		if call.sent && call.packet.Type == typ && (first == nil || int32(call.packet.ID-first.packet.ID) < 0) {
			first = call
		}
	}
	return first
}
