package session

import (
	"os"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// Where devices have memory of their own, workers hold device segments in it and pass each other this memory. The gate
// page records the holders.

// shareMemory enables sharing of device memory in the domain's store, if the device supports it.
func (h *segments) shareMemory(store *os.File) {
	c := h.can.Coordination
	if c == nil || h.can.FileSharing == nil && h.can.PeerSharing == nil {
		return
	}
	if d := h.can.PeerSharing; d != nil {
		h.gate.CountSegmentsIn(d.SegmentUnit())
	}
	h.store = &segmentStore{file: store, device: c}
}

// describe describes an attached segment to the device.
func (h *segments) describe(seg gate.Segment) accel.DeviceSegment {
	return accel.DeviceSegment{
		ID: seg.ID, Tag: h.gate.SegmentTag(seg.ID), Bytes: seg.Bytes, File: h.store.file, Offset: seg.Offset, SegmentState: segmentHolding{h, seg},
	}
}

// segmentHolding implements accel.SegmentState for a segment with the gate page.
type segmentHolding struct {
	s   *segments
	seg gate.Segment
}

func (h segmentHolding) Claim(leaves bool) cuda.Result {
	stop := func() bool { return !leaves && h.s.over() }
	if !h.s.gate.ClaimSegment(h.seg.ID, gate.KeepTime(h.seg.Bytes), stop) {
		if !stop() {
			h.s.log.Warn("claim device segment: timed out; another process holds the claim", "bytes", h.seg.Bytes)
		}
		return cuda.ErrorTimeout
	}
	return cuda.Success
}

func (h segmentHolding) Yield()             { h.s.gate.YieldSegment(h.seg.ID) }
func (h segmentHolding) Holders() []uint32  { return h.s.gate.SegmentHolders(h.seg.ID) }
func (h segmentHolding) Hold(id uint32)     { h.s.gate.HoldSegment(h.seg.ID, id) }
func (h segmentHolding) Leave(stored bool)  { h.s.gate.LeaveSegment(h.seg.ID, stored) }
func (h segmentHolding) Stored() bool       { return h.s.gate.SegmentStored(h.seg.ID) }
func (h segmentHolding) Clear() error       { return h.s.store.Clear(h.seg.Offset, h.seg.Bytes) }
func (h segmentHolding) Wanted() bool       { return h.s.gate.SegmentWanted(h.seg.ID) }
func (h segmentHolding) Used(u accel.Usage) { h.s.gate.Charge(u) }

// storeAll stores the segments that would be lost with this process, while work may still run. It returns false if
// there are none, or if the time for it is over.
func (h *segments) storeAll() bool {
	k := h.can.PeerSharing
	patience := h.gate.Holds()
	if k == nil || patience == 0 {
		return false
	}
	kept := make(chan struct{})
	go func() {
		k.StoreSegments()
		close(kept)
	}()
	select {
	case <-kept:
		return true
	case <-time.After(patience):
		h.log.Warn("store device segments: timed out; leaving them to the kernel")
		return false
	}
}
