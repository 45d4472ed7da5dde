package worker

import (
	"errors"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// memory is device memory without an address, which the guest can map.
type memory struct {
	m       accel.Memory
	shared  bool
	segment uint32 // if it is shared
}

// maxRanges bounds the address ranges that a guest process has reserved.
const maxRanges = 4096

// mapper returns the device's mapping interface. Its calls name no context: neither addresses nor memory belong to one.
func (s *session) mapper() (accel.Mapper, cuda.Result) {
	if m := s.can.Mapping; m != nil {
		return m, cuda.Success
	}
	return nil, cuda.ErrorNotSupported
}

func (s *session) RangeReserve(_ cuda.Call, a cuda.RangeReserveArgs) (out cuda.RangeReserveResult, r cuda.Result) {
	m, r := s.mapper()
	if r != cuda.Success {
		return out, r
	}
	if len(s.ranges) >= maxRanges {
		return out, cuda.ErrorOutOfMemory
	}
	if out.Address, r = m.ReserveRange(a.Bytes, a.Alignment, a.Wish); r == cuda.Success {
		s.ranges[out.Address] = struct{}{}
	}
	return out, r
}

func (s *session) RangeFree(_ cuda.Call, a cuda.RangeFreeArgs) cuda.Result {
	m, r := s.mapper()
	if r != cuda.Success {
		return r
	}
	if r = m.FreeRange(a.Address); r == cuda.Success {
		delete(s.ranges, a.Address)
	}
	return r
}

// MemoryCreate waits for memory that is being freed, like MemAlloc, but not for memory that may never be freed.
func (s *session) MemoryCreate(_ cuda.Call, a cuda.MemoryCreateArgs) cuda.Result {
	m, r := s.mapper()
	if r != cuda.Success {
		return r
	}
	r = s.createMemory(m, a)
	for r == cuda.ErrorOutOfMemory && m.AwaitFree() && !s.ending.now.Load() {
		r = s.createMemory(m, a)
	}
	return r
}

func (s *session) createMemory(m accel.Mapper, a cuda.MemoryCreateArgs) cuda.Result {
	r := s.memories.free(a.Memory)
	switch {
	case r != cuda.Success:
		return r
	case a.Device != 0:
		return cuda.ErrorInvalidDevice
	case a.Bytes == 0 || a.Bytes%m.MapGranule() != 0 || a.Shared > 1:
		return cuda.ErrorInvalidValue
	case a.Bytes > s.total:
		return cuda.ErrorOutOfMemory
	case a.Shared == 1:
		if r, ok := s.createShared(a); ok {
			return r
		}
	}
	mem, r := m.CreateMemory(a.Bytes)
	if r == cuda.Success {
		s.memories.put(a.Memory, &memory{m: mem})
	}
	return r
}

// createShared makes memory that other processes can import. ok is false if that is impossible because the device
// shares no memory or the domain has enough loose segments: programs request such memory long before they need it, and
// most never do. They then get other memory, and an error when they export it.
func (s *session) createShared(a cuda.MemoryCreateArgs) (r cuda.Result, ok bool) {
	if s.can.FileSharing == nil || s.commons == nil {
		return 0, false
	}
	seg, err := s.gate.MakeLoose(s.commons, a.Bytes)
	if errors.Is(err, gate.ErrSegments) {
		return 0, false
	}
	if err != nil {
		return segmentResult(err), true
	}
	return s.adopt(a.Memory, seg.ID, seg.Offset, seg.Bytes), true
}

// adopt gives an attached segment an id as the guest's memory.
func (s *session) adopt(id uint64, segment uint32, offset, bytes uint64) cuda.Result {
	mem, r := s.can.FileSharing.ImportMemory(s.commons.file, offset, bytes, func() { s.gate.DetachSegment(s.commons, segment) })
	if r != cuda.Success {
		s.gate.DetachSegment(s.commons, segment)
		return r
	}
	s.memories.put(id, &memory{m: mem, shared: true, segment: segment})
	return cuda.Success
}

func (s *session) MemoryRelease(_ cuda.Call, a cuda.MemoryReleaseArgs) cuda.Result {
	mem, r := s.memories.take(a.Memory)
	if r == cuda.Success {
		mem.m.Release()
	}
	return r
}

func (s *session) MemoryMap(_ cuda.Call, a cuda.MemoryMapArgs) cuda.Result {
	m, r := s.mapper()
	if r != cuda.Success {
		return r
	}
	mem, r := s.memories.get(a.Memory)
	if r != cuda.Success {
		return r
	}
	return m.Map(a.Address, a.Bytes, a.Offset, mem.m)
}

func (s *session) MemoryUnmap(_ cuda.Call, a cuda.MemoryUnmapArgs) cuda.Result {
	m, r := s.mapper()
	if r != cuda.Success {
		return r
	}
	return m.Unmap(a.Address, a.Bytes)
}

func (s *session) MemoryAccess(_ cuda.Call, a cuda.MemoryAccessArgs) cuda.Result {
	m, r := s.mapper()
	if r != cuda.Success {
		return r
	}
	switch access := accel.Access(a.Access); access {
	case accel.NoAccess, accel.ReadOnly, accel.ReadWrite:
		return m.SetAccess(a.Address, a.Bytes, access)
	}
	return cuda.ErrorInvalidValue
}

func (s *session) MemoryExport(_ cuda.Call, a cuda.MemoryExportArgs) (out cuda.MemoryExportResult, r cuda.Result) {
	mem, r := s.memories.get(a.Memory)
	if r != cuda.Success {
		return out, r
	}
	if d := s.can.PeerSharing; d != nil {
		t, r := d.ExportMemory(mem.m)
		return cuda.MemoryExportResult{Secret: t.Tag, Segment: t.ID}, r
	}
	if !mem.shared {
		return out, cuda.ErrorNotSupported
	}
	secret, err := s.gate.LooseSecret(mem.segment)
	return cuda.MemoryExportResult{Secret: secret, Segment: mem.segment}, segmentResult(err)
}

func (s *session) MemoryImport(_ cuda.Call, a cuda.MemoryImportArgs) (out cuda.MemoryImportResult, r cuda.Result) {
	if _, r = s.mapper(); r == cuda.Success {
		r = s.memories.free(a.Memory)
	}
	if r != cuda.Success {
		return out, r
	}
	if d := s.can.PeerSharing; d != nil {
		m, bytes, r := d.ImportMemory(accel.ShareToken{ID: a.Segment, Tag: a.Secret})
		if r == cuda.Success {
			out.Bytes = bytes
			s.memories.put(a.Memory, &memory{m: m})
		}
		return out, r
	}
	if s.can.FileSharing == nil || s.commons == nil {
		return out, cuda.ErrorNotSupported
	}
	seg, err := s.gate.AttachLoose(a.Segment, a.Secret)
	if err != nil {
		return out, cuda.ErrorInvalidValue
	}
	out.Bytes = seg.Bytes
	return out, s.adopt(a.Memory, seg.ID, seg.Offset, seg.Bytes)
}
