package worker

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"pegasus/accel"
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
func (s *session) MemLend(_ cuda.Call, a cuda.MemLendArgs) (out cuda.MemLendResult, r cuda.Result) {
	if s.allocs[a.Address] == nil {
		return out, cuda.ErrorInvalidValue
	}
	if d := s.can.PeerSharing; d != nil {
		t, bytes, r := d.ExportIPC(a.Address)
		return cuda.MemLendResult{Tag: t.Tag, Bytes: bytes, Segment: t.ID}, r
	}
	d := s.can.FileSharing
	if d == nil || s.commons == nil {
		return out, cuda.ErrorNotSupported
	}
	id, at, bytes, r := d.ExportIPC(a.Address, func(bytes uint64) (l accel.ExportedRegion, r cuda.Result) {
		seg, err := s.gate.MakeLoose(s.commons, bytes)
		if err != nil {
			return l, segmentResult(err)
		}
		return accel.ExportedRegion{File: s.commons.file, Offset: seg.Offset, ID: seg.ID, Gone: func() { s.gate.DetachSegment(s.commons, seg.ID) }}, cuda.Success
	})
	if r != cuda.Success {
		return out, r
	}
	secret, err := s.gate.LooseSecret(id)
	return cuda.MemLendResult{Tag: tagOf(secret, at, bytes), Offset: at, Bytes: bytes, Segment: id}, segmentResult(err)
}

// MemBorrow attaches an allocation of another process.
func (s *session) MemBorrow(c cuda.Call, a cuda.MemBorrowArgs) (out cuda.MemBorrowResult, r cuda.Result) {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return out, r
	}
	if b := g.can.Peers; b != nil {
		return s.borrow(g, b, a)
	}
	if s.commons == nil {
		return out, cuda.ErrorNotSupported
	}
	at := g.can.Files
	if at == nil {
		return out, cuda.ErrorNotSupported
	}
	if len(s.attached) >= maxObjects {
		return out, cuda.ErrorOutOfMemory
	}
	secret, err := s.gate.LooseSecret(a.Segment)
	if err != nil || !sameTag(tagOf(secret, a.Offset, a.Bytes), a.Tag) {
		return out, cuda.ErrorInvalidValue
	}
	seg, err := s.gate.AttachLoose(a.Segment, secret)
	if err != nil {
		return out, cuda.ErrorInvalidValue
	}
	if out.Address, r = at.Attach(s.commons.file, seg.Offset+a.Offset, a.Bytes); r != cuda.Success {
		s.gate.DetachSegment(s.commons, seg.ID)
		return out, g.report(r)
	}
	s.attached[out.Address] = attachment{g, at, func() { s.gate.DetachSegment(s.commons, seg.ID) }}
	return out, cuda.Success
}

// borrow is MemBorrow for devices that pass memory to each other.
func (s *session) borrow(g *guestContext, b accel.PeerAttacher, a cuda.MemBorrowArgs) (out cuda.MemBorrowResult, r cuda.Result) {
	if len(s.attached) >= maxObjects {
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
	s.attached[addr] = attachment{g, b, func() {}}
	return cuda.MemBorrowResult{Address: addr}, cuda.Success
}

func sameTag(a, b uint64) bool {
	return subtle.ConstantTimeEq(int32(a), int32(b))&subtle.ConstantTimeEq(int32(a>>32), int32(b>>32)) == 1
}
