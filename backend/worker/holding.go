package worker

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
func (s *session) shareMemory(store *os.File) {
	c := s.can.Coordination
	if c == nil || s.can.FileSharing == nil && s.can.PeerSharing == nil {
		return
	}
	if d := s.can.PeerSharing; d != nil {
		s.gate.CountSegmentsIn(d.SegmentUnit())
	}
	s.commons = &commons{file: store, device: c}
}

// common describes an attached segment to the device.
func (s *session) common(seg gate.Segment) accel.DeviceSegment {
	return accel.DeviceSegment{
		ID: seg.ID, Tag: s.gate.SegmentTag(seg.ID), Bytes: seg.Bytes, File: s.commons.file, Offset: seg.Offset, SegmentState: holding{s, seg},
	}
}

// holding implements accel.SegmentState for a segment with the gate page.
type holding struct {
	s   *session
	seg gate.Segment
}

func (h holding) Claim(leaves bool) cuda.Result {
	stop := func() bool { return !leaves && h.s.ending.now.Load() }
	if !h.s.gate.ClaimSegment(h.seg.ID, gate.KeepTime(h.seg.Bytes), stop) {
		if !stop() {
			h.s.log.Warn("another process doesn't get done with a device segment", "bytes", h.seg.Bytes)
		}
		return cuda.ErrorTimeout
	}
	return cuda.Success
}

func (h holding) Yield()             { h.s.gate.YieldSegment(h.seg.ID) }
func (h holding) Holders() []uint32  { return h.s.gate.SegmentHolders(h.seg.ID) }
func (h holding) Hold(id uint32)     { h.s.gate.HoldSegment(h.seg.ID, id) }
func (h holding) Leave(stored bool)  { h.s.gate.LeaveSegment(h.seg.ID, stored) }
func (h holding) Stored() bool       { return h.s.gate.SegmentStored(h.seg.ID) }
func (h holding) Clear() error       { return h.s.commons.Clear(h.seg.Offset, h.seg.Bytes) }
func (h holding) Wanted() bool       { return h.s.gate.SegmentWanted(h.seg.ID) }
func (h holding) Used(u accel.Usage) { h.s.gate.Charge(u) }

// keep stores the segments that would be lost with this process, while work may still run. It returns false if there
// are none, or if the time for it is over.
func (s *session) keep() bool {
	k := s.can.PeerSharing
	patience := s.gate.Holds()
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
		s.log.Warn("device segments that can't be stored are left to the kernel")
		return false
	}
}
