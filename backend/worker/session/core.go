package session

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// core is the part of a session that all its other parts use: the segment, the gate, the device, and the session's end.
// Its fields are set before the session serves calls.
type core struct {
	host   *callbuf.Host
	gate   *gate.Member
	device accel.Device
	can    accel.Capabilities // of the device
	total  uint64             // the device's memory in bytes
	log    *slog.Logger
	ending ending
}

// base is the part of a session that every group of calls uses.
type base struct {
	*core
	work     *submitter
	contexts *contexts
}

// ending is the end of a session, which happens once.
type ending struct {
	once   sync.Once
	now    atomic.Bool
	why    string
	result cuda.Result // of every later call; set before now

	abandoned atomic.Bool // some work runs until the process ends
}

// over reports whether the session has ended.
func (c *core) over() bool { return c.ending.now.Load() }

// end makes every further call of the guest process return r and stops the poller. Any goroutine may call it.
func (c *core) end(r cuda.Result, why string) {
	c.ending.once.Do(func() {
		c.ending.why, c.ending.result = why, r
		if why != "" {
			c.log.Warn("session dropped", "why", why, "result", r.Name())
		}
		c.host.Poison(int32(r))
		c.ending.now.Store(true)
		c.gate.Stop()
		if d := c.can.Control; d != nil {
			d.Abort() // the poller itself may be executing work
		}
		c.host.Unpark()
	})
}

// answer writes a reply. If a call's context is destroyed because the session ends, the reply has the session's result.
func (c *core) answer(call cuda.Call, r cuda.Result, data []byte) {
	if r == cuda.ErrorContextIsDestroyed && c.over() {
		r = c.ending.result
	}
	if err := c.host.Reply(call.ReplySlot, call.ReplyTag, int32(r), data); err != nil {
		c.log.Error("answer a call", "op", call.Op, "err", err)
	}
}
