package soft

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/cuda"
)

// hostFunc holds the stream back until the guest has run a function.
func (c *Context) hostFunc(s *Stream, w *accel.HostFunc, done accel.Done) cuda.Result {
	if w.Due == nil {
		return cuda.ErrorInvalidValue
	}
	d := c.dev
	d.mu.Lock()
	n := d.newNode(c, hostNode)
	n.due, n.done = w.Due, done
	d.hostFuncs++
	s.append(n)
	d.submit(n)
	return cuda.Success
}

// callHost notifies the guest that its function is due. It returns true if that has become pointless, and the node is
// to end at once.
func (d *Device) callHost(n *node, r cuda.Result) bool {
	c := n.ctx
	call := &hostCall{n: n, telling: true}
	d.mu.Lock()
	if c.destroyed.Begun {
		d.hostFuncs--
		d.mu.Unlock()
		return true
	}
	c.calls[call] = struct{}{}
	d.mu.Unlock()
	n.due(r, func() { c.returned(call, c.Err()) })
	d.mu.Lock()
	call.telling = false
	gone := c.destroyed.Begun
	d.mu.Unlock()
	if gone {
		c.returned(call, c.Err())
	}
	return false
}

// hostCall is a host function that was reported to the guest and has not finished.
type hostCall struct {
	n       *node
	over    atomic.Bool
	telling bool // the guest is being notified: until that has returned, the context's destruction leaves the node; guarded by the device's mu
}

// returned ends a host function's node, in the first call only.
func (c *Context) returned(call *hostCall, r cuda.Result) {
	if call.over.Swap(true) {
		return
	}
	d := c.dev
	d.mu.Lock()
	delete(c.calls, call)
	d.hostFuncs--
	d.mu.Unlock()
	d.finish(call.n, r, accel.Usage{}, nil)
}
