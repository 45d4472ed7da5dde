package session

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"pegasus/accel"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// Exported memory of a domain's processes is in the store of its segments, unless the devices pass it to each other:
// the device puts the memory around an allocation there, as a loose segment. The name of an allocation gives access to
// its part of the segment and no more, since its tag can be computed only from the segment's secret, which workers have
// and no guest.

// tagOf returns the tag of a part of a segment.
func tagOf(secret, offset, bytes uint64) uint64 {
	var text [24]byte
	binary.LittleEndian.PutUint64(text[:], secret)
	binary.LittleEndian.PutUint64(text[8:], offset)
	binary.LittleEndian.PutUint64(text[16:], bytes)
	sum := sha256.Sum256(text[:])
	return binary.LittleEndian.Uint64(sum[:])
}

// MemLend waits until no work uses the process's memory; the process's later calls queue behind it.
func (h *segments) MemLend(_ cuda.Call, a cuda.MemLendArgs) (out cuda.MemLendResult, r cuda.Result) {
	if h.allocations.owners[a.Address] == nil {
		return out, cuda.ErrorInvalidValue
	}
	h.gate.Rest()
	if d := h.can.PeerSharing; d != nil {
		t, bytes, r := d.ExportIPC(a.Address)
		return cuda.MemLendResult{Tag: t.Tag, Bytes: bytes, Segment: t.ID}, r
	}
	d := h.can.FileSharing
	if d == nil || h.store == nil {
		return out, cuda.ErrorNotSupported
	}
	id, at, bytes, r := d.ExportIPC(a.Address, func(bytes uint64) (l accel.ExportedRegion, r cuda.Result) {
		seg, err := h.gate.MakeLoose(h.store, bytes)
		if err != nil {
			return l, segmentResult(err)
		}
		return accel.ExportedRegion{File: h.store.file, Offset: seg.Offset, ID: seg.ID, Gone: func() { h.gate.DetachSegment(h.store, seg.ID) }}, cuda.Success
	})
	if r != cuda.Success {
		return out, r
	}
	secret, err := h.gate.LooseSecret(id)
	return cuda.MemLendResult{Tag: tagOf(secret, at, bytes), Offset: at, Bytes: bytes, Segment: id}, segmentResult(err)
}

// MemBorrow attaches an allocation of another process.
func (h *segments) MemBorrow(c cuda.Call, a cuda.MemBorrowArgs) (out cuda.MemBorrowResult, r cuda.Result) {
	g, r := h.contexts.forWork(c)
	if r != cuda.Success {
		return out, r
	}
	h.gate.Rest() // it may wait for the other process's worker
	if b := g.can.Peers; b != nil {
		return h.importIPC(g, b, a)
	}
	if h.store == nil {
		return out, cuda.ErrorNotSupported
	}
	at := g.can.Files
	if at == nil {
		return out, cuda.ErrorNotSupported
	}
	if len(h.attached) >= handles.Max {
		return out, cuda.ErrorOutOfMemory
	}
	secret, err := h.gate.LooseSecret(a.Segment)
	if err != nil || !equalTags(tagOf(secret, a.Offset, a.Bytes), a.Tag) {
		return out, cuda.ErrorInvalidValue
	}
	seg, err := h.gate.AttachLoose(a.Segment, secret)
	if err != nil {
		return out, cuda.ErrorInvalidValue
	}
	if out.Address, r = at.Attach(h.store.file, seg.Offset+a.Offset, a.Bytes); r != cuda.Success {
		h.gate.DetachSegment(h.store, seg.ID)
		return out, g.report(r)
	}
	h.attached[out.Address] = attachment{g, at, func() { h.gate.DetachSegment(h.store, seg.ID) }}
	return out, cuda.Success
}

// importIPC is MemBorrow for devices that pass memory to each other.
func (h *segments) importIPC(g *guestContext, b accel.PeerAttacher, a cuda.MemBorrowArgs) (out cuda.MemBorrowResult, r cuda.Result) {
	if len(h.attached) >= handles.Max {
		return out, cuda.ErrorOutOfMemory
	}
	if a.Offset != 0 {
		return out, cuda.ErrorInvalidValue
	}
	addr, bytes, r := b.ImportIPC(accel.ShareToken{ID: a.Segment, Tag: a.Tag})
	if r != cuda.Success {
		return out, g.report(r)
	}
	if bytes != a.Bytes { // the guest would assume more memory, or less
		b.Detach(addr, func() {})
		return out, cuda.ErrorInvalidValue
	}
	h.attached[addr] = attachment{g, b, func() {}}
	return cuda.MemBorrowResult{Address: addr}, cuda.Success
}

func equalTags(a, b uint64) bool {
	return subtle.ConstantTimeEq(int32(a), int32(b))&subtle.ConstantTimeEq(int32(a>>32), int32(b>>32)) == 1
}
