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

// conn is one connection. One goroutine reads it and one writes it; neither waits for
// anybody but the link, so a server that waits for us to read is always read.
type conn struct {
	link  Link
	event func(path, token string)
	wake  chan struct{} // the outbox has something
	dead  chan struct{} // closed when err is set
	ends  sync.WaitGroup
	err   error // why it ended; see dead

	mu      sync.Mutex
	ended   bool
	last    uint32           // the id used last; 0 isn't used
	pending map[uint32]*call // what has no answer yet, sent or not
	outbox  []*call          // what isn't sent yet; never more than pending
}

// call is a request on its way.
type call struct {
	packet wire.Packet
	path   string              // for errors
	undo   func(*conn, []byte) // takes back what nobody waited for; may be nil
	did    func()              // is told that it was done, by the reader before all else; may be nil

	// Under the connection's lock, until there is an outcome.
	sent     bool
	answered bool // the outcome is about to come
	gone     bool // nobody waits for it

	done  chan struct{} // closed when there is an outcome
	reply []byte
	err   error
}

// connect starts to serve a link.
func connect(link Link, event func(path, token string)) *conn {
	c := &conn{
		link: link, event: event, wake: make(chan struct{}, 1), dead: make(chan struct{}),
		pending: map[uint32]*call{},
	}
	c.ends.Go(c.read)
	c.ends.Go(c.write)
	return c
}

// patience is how long a device is waited for that is closed.
const patience = 100 * time.Millisecond

// wait returns when all goroutines have ended, which they do after fail. Only a device's may take longer, which are within
// the kernel until XenStore answers: for those it doesn't wait, and nothing of theirs is anybody's any more.
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

// do asks and waits for the answer. When ctx ends first, a request that wasn't sent won't
// be, and one that was is undone when its answer comes.
func (c *conn) do(ctx context.Context, call *call) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, call.wrap(err)
	}
	if why := c.unable(call.packet); why != "" {
		return nil, call.wrap(fmt.Errorf("%w: %s", syscall.ENOTSUP, why))
	}
	call.done, call.sent, call.answered = make(chan struct{}), false, false // it may have been asked on a connection before
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

// unable is why a device can't be asked that, which would do something else; "" if it can.
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

// post asks and lets the answer go.
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

// leave says that nobody waits for a call any more, unless it has just been answered.
func (c *conn) leave(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.answered {
		return false
	}
	call.gone = true
	if !call.sent { // a server that is stuck must not have us keep what nobody waits for
		delete(c.pending, call.packet.ID)
		if i := slices.Index(c.outbox, call); i >= 0 {
			c.outbox = slices.Delete(c.outbox, i, i+1)
		}
	}
	return true
}

// finish is an outcome. It is called once, by whoever took the call out of pending.
func (call *call) finish(reply []byte, err error) {
	call.reply, call.err = reply, err
	close(call.done)
}

// wrap says what an error is about.
func (call *call) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &Error{call.packet.Type, call.path, err}
}

// fail ends the connection, if it hasn't ended yet, and all its calls. These come first: to close a device takes as long as a
// Write that is within the kernel.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended, c.err = true, err
	if c.link.Device {
		c.ends.Add(1) // for its Close, before anybody waits
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

// take takes calls out of the outbox, which count as sent then: all, or of a device's one.
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

// write sends what the outbox has.
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

// deviceMax is the longest packet that a kernel's device takes, header and all.
const deviceMax = 4096

// writeDevice sends one packet and waits for its answer. Linux keeps a packet's body in one place for all
// of a file's, and passes it on when it finds the time: another one before the answer would spoil it.
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

// refused is a packet that the device didn't take. An errno is its answer to the packet,
// which it has forgotten then; anything else is the device's own end.
func (c *conn) refused(call *call, err error) {
	var errno syscall.Errno
	if errors.Is(err, os.ErrClosed) || !errors.As(err, &errno) {
		c.fail(fmt.Errorf("%w: %w", ErrLost, err))
		return
	}
	c.give(call, errno)
}

// give gives a call its outcome, if it has none yet.
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

// settle takes a call out of pending, whose outcome the caller, who has the lock, knows.
func (c *conn) settle(call *call) {
	call.answered = true
	delete(c.pending, call.packet.ID)
}

// read takes in answers and events.
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

// receive finds who waits for a packet.
func (c *conn) receive(p wire.Packet) error {
	if p.Type == wire.WatchEvent { // whose other numbers mean nothing
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

// oldest is the one of a type that was sent first. Older kernels answer requests for watches
// themselves, in their order and without their id.
func (c *conn) oldest(typ wire.Type) (first *call) {
	for _, call := range c.pending {
		if call.sent && call.packet.Type == typ && (first == nil || int32(call.packet.ID-first.packet.ID) < 0) {
			first = call
		}
	}
	return first
}
