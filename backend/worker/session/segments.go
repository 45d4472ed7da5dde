package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// Device segments are described in the domain's gate page, which all its workers map, and stored in its store. They
// therefore need no daemon, and a worker cannot name another domain's segments.

// attachment is a segment that a context uses, or memory that another process exports.
type attachment struct {
	g    *guestContext
	by   accel.Detacher
	gone func() // called when it is no longer used
}

// segments owns the device segments and the exported memory of other processes that this process has attached, and
// handles the calls about them and about exports. The poller owns it.
type segments struct {
	base
	allocations *allocations
	attached    map[uint64]attachment // by address
	store       *segmentStore         // nil if the device cannot share memory
}

// segmentStore is the store of the domain's segments.
type segmentStore struct {
	file   *os.File
	device accel.Coordinator
}

func (c *segmentStore) Resize(bytes uint64) bool { return c.device.ReserveSegments(bytes) }

func (c *segmentStore) Clear(offset, bytes uint64) error {
	return unix.Fallocate(int(c.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(bytes))
}

// segmentResults maps errors to the results that a guest receives.
var segmentResults = []struct {
	err error
	r   cuda.Result
}{
	{gate.ErrNoSegment, cuda.ErrorInvalidHandle},
	{gate.ErrSegmentSize, cuda.ErrorInvalidValue},
	{gate.ErrQuota, cuda.ErrorOutOfMemory},
	{gate.ErrSegments, cuda.ErrorOutOfMemory},
}

func segmentResult(err error) cuda.Result {
	if err == nil {
		return cuda.Success
	}
	for _, k := range segmentResults {
		if errors.Is(err, k.err) {
			return k.r
		}
	}
	return cuda.ErrorUnknown
}

// sharingContext returns the context that a call names, or an error if the device cannot share memory.
func (h *segments) sharingContext(c cuda.Call) (*guestContext, cuda.Result) {
	g, r := h.contexts.forWork(c)
	if r == cuda.Success && h.store == nil {
		r = cuda.ErrorNotSupported
	}
	return g, r
}

func (h *segments) SegmentGet(c cuda.Call, a cuda.SegmentGetArgs) (out cuda.SegmentGetResult, r cuda.Result) {
	if _, r := h.sharingContext(c); r != cuda.Success {
		return out, r
	}
	if a.Bytes > h.total {
		return out, cuda.ErrorOutOfMemory
	}
	seg, err := h.gate.GetSegment(h.store, a.Key, (a.Bytes+segmentGranule-1)&^(segmentGranule-1))
	if errors.Is(err, gate.ErrNoSegment) {
		return out, cuda.ErrorNotFound
	}
	return cuda.SegmentGetResult{Segment: seg.ID}, segmentResult(err)
}

// segmentGranule is the unit to which segment sizes are rounded up, in bytes.
const segmentGranule = 4096

func (h *segments) SegmentAttach(c cuda.Call, a cuda.SegmentAttachArgs) (out cuda.SegmentAttachResult, r cuda.Result) {
	g, r := h.sharingContext(c)
	if r != cuda.Success {
		return out, r
	}
	if len(h.attached) >= handles.Max {
		return out, cuda.ErrorOutOfMemory
	}
	h.gate.Rest() // it may wait for another worker that has the segment
	seg, err := h.gate.AttachSegment(a.Segment)
	if err != nil {
		return out, segmentResult(err)
	}
	at := attachment{g: g, gone: func() { h.gate.DetachSegment(h.store, seg.ID) }}
	r = cuda.ErrorNotSupported
	if ctx := g.can.Files; ctx != nil {
		at.by = ctx
		out.Address, r = ctx.Attach(h.store.file, seg.Offset, seg.Bytes)
	} else if ctx := g.can.Peers; ctx != nil {
		at.by = ctx
		out.Address, r = ctx.AttachSegment(h.describe(seg))
	}
	if r != cuda.Success {
		at.gone()
		return out, g.report(r)
	}
	out.Bytes = seg.Bytes
	h.attached[out.Address] = at
	return out, cuda.Success
}

// SegmentDetach releases the attachment when no work uses it any more: then the segment may be freed.
func (h *segments) SegmentDetach(c cuda.Call, a cuda.SegmentDetachArgs) cuda.Result {
	at, ok := h.attached[a.Address]
	if !ok {
		return cuda.ErrorInvalidValue
	}
	delete(h.attached, a.Address)
	h.work.begin()
	r := at.by.Detach(a.Address, func() {
		at.gone()
		h.answer(c, cuda.Success, nil)
		h.work.ended()
	})
	if r != cuda.Success {
		h.work.ended()
		return at.g.report(r)
	}
	return cuda.Deferred
}

// take removes a context's attachments, and returns the function that releases them after the context's
// destruction.
func (h *segments) take(g *guestContext) (release func()) {
	var all []func()
	for addr, at := range h.attached {
		if at.g == g {
			delete(h.attached, addr)
			all = append(all, at.gone)
		}
	}
	return func() {
		for _, gone := range all {
			gone()
		}
	}
}

// Actions of SegmentControl.
const (
	removeSegment = 1
	querySegment  = 2
)

func (h *segments) SegmentControl(c cuda.Call, a cuda.SegmentControlArgs) (out cuda.SegmentControlResult, r cuda.Result) {
	if _, r := h.sharingContext(c); r != cuda.Success {
		return out, r
	}
	var seg gate.Segment
	var err error
	switch a.Action {
	case removeSegment:
		seg, err = h.gate.RemoveSegment(h.store, a.Segment)
	case querySegment:
		seg, err = h.gate.SegmentOf(a.Segment)
	default:
		return out, cuda.ErrorInvalidValue
	}
	if err != nil {
		return out, segmentResult(err)
	}
	return cuda.SegmentControlResult{Bytes: seg.Bytes, Key: seg.Key, Attached: uint32(seg.Attached)}, cuda.Success
}
