package session

import (
	"errors"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/handles"
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

// mappings owns the address ranges that the guest process has reserved, and its memory without an address, and handles
// the calls about them. The poller owns it.
type mappings struct {
	base
	segments *segments
	table    handles.Table[*memory]
	ranges   map[uint64]struct{} // reserved addresses
}

// mapper returns the device's mapping interface. Its calls name no context: neither addresses nor memory belong to one.
func (h *mappings) mapper() (accel.Mapper, cuda.Result) {
	if m := h.can.Mapping; m != nil {
		return m, cuda.Success
	}
	return nil, cuda.ErrorNotSupported
}

func (h *mappings) RangeReserve(_ cuda.Call, a cuda.RangeReserveArgs) (out cuda.RangeReserveResult, r cuda.Result) {
	m, r := h.mapper()
	if r != cuda.Success {
		return out, r
	}
	if len(h.ranges) >= maxRanges {
		return out, cuda.ErrorOutOfMemory
	}
	if out.Address, r = m.ReserveRange(a.Bytes, a.Alignment, a.Wish); r == cuda.Success {
		h.ranges[out.Address] = struct{}{}
	}
	return out, r
}

func (h *mappings) RangeFree(_ cuda.Call, a cuda.RangeFreeArgs) cuda.Result {
	m, r := h.mapper()
	if r != cuda.Success {
		return r
	}
	if r = m.FreeRange(a.Address); r == cuda.Success {
		delete(h.ranges, a.Address)
	}
	return r
}

// MemoryCreate waits for memory that is being freed, like MemAlloc, but not for memory that may never be freed.
func (h *mappings) MemoryCreate(_ cuda.Call, a cuda.MemoryCreateArgs) cuda.Result {
	m, r := h.mapper()
	if r != cuda.Success {
		return r
	}
	if r = h.createMemory(m, a); r == cuda.ErrorOutOfMemory {
		h.gate.Rest()
	}
	for r == cuda.ErrorOutOfMemory && m.AwaitFree() && !h.over() {
		r = h.createMemory(m, a)
	}
	return r
}

func (h *mappings) createMemory(m accel.Mapper, a cuda.MemoryCreateArgs) cuda.Result {
	r := h.table.Available(a.Memory)
	switch {
	case r != cuda.Success:
		return r
	case a.Device != 0:
		return cuda.ErrorInvalidDevice
	case a.Bytes == 0 || a.Bytes%m.MapGranule() != 0 || a.Shared > 1:
		return cuda.ErrorInvalidValue
	case a.Bytes > h.total:
		return cuda.ErrorOutOfMemory
	case a.Shared == 1:
		if r, ok := h.createShared(a); ok {
			return r
		}
	}
	mem, r := m.CreateMemory(a.Bytes)
	if r == cuda.Success {
		h.table.Put(a.Memory, &memory{m: mem})
	}
	return r
}

// createShared makes memory that other processes can import. ok is false if that is impossible because the device
// shares no memory or the domain has enough loose segments: programs request such memory long before they need it, and
// most never do. They then get other memory, and an error when they export it.
func (h *mappings) createShared(a cuda.MemoryCreateArgs) (r cuda.Result, ok bool) {
	if h.can.FileSharing == nil || h.segments.store == nil {
		return 0, false
	}
	seg, err := h.gate.MakeLoose(h.segments.store, a.Bytes)
	if errors.Is(err, gate.ErrSegments) {
		return 0, false
	}
	if err != nil {
		return segmentResult(err), true
	}
	return h.addShared(a.Memory, seg.ID, seg.Offset, seg.Bytes), true
}

// addShared gives an attached segment an id as the guest's memory.
func (h *mappings) addShared(id uint64, segment uint32, offset, bytes uint64) cuda.Result {
	mem, r := h.can.FileSharing.ImportMemory(h.segments.store.file, offset, bytes, func() { h.gate.DetachSegment(h.segments.store, segment) })
	if r != cuda.Success {
		h.gate.DetachSegment(h.segments.store, segment)
		return r
	}
	h.table.Put(id, &memory{m: mem, shared: true, segment: segment})
	return cuda.Success
}

func (h *mappings) MemoryRelease(_ cuda.Call, a cuda.MemoryReleaseArgs) cuda.Result {
	mem, r := h.table.Take(a.Memory)
	if r == cuda.Success {
		mem.m.Release()
	}
	return r
}

func (h *mappings) MemoryMap(_ cuda.Call, a cuda.MemoryMapArgs) cuda.Result {
	m, r := h.mapper()
	if r != cuda.Success {
		return r
	}
	mem, r := h.table.Get(a.Memory)
	if r != cuda.Success {
		return r
	}
	return m.Map(a.Address, a.Bytes, a.Offset, mem.m)
}

func (h *mappings) MemoryUnmap(_ cuda.Call, a cuda.MemoryUnmapArgs) cuda.Result {
	m, r := h.mapper()
	if r != cuda.Success {
		return r
	}
	return m.Unmap(a.Address, a.Bytes)
}

func (h *mappings) MemoryAccess(_ cuda.Call, a cuda.MemoryAccessArgs) cuda.Result {
	m, r := h.mapper()
	if r != cuda.Success {
		return r
	}
	switch access := accel.Access(a.Access); access {
	case accel.NoAccess, accel.ReadOnly, accel.ReadWrite:
		return m.SetAccess(a.Address, a.Bytes, access)
	}
	return cuda.ErrorInvalidValue
}

func (h *mappings) MemoryExport(_ cuda.Call, a cuda.MemoryExportArgs) (out cuda.MemoryExportResult, r cuda.Result) {
	mem, r := h.table.Get(a.Memory)
	if r != cuda.Success {
		return out, r
	}
	if d := h.can.PeerSharing; d != nil {
		t, r := d.ExportMemory(mem.m)
		return cuda.MemoryExportResult{Secret: t.Tag, Segment: t.ID}, r
	}
	if !mem.shared {
		return out, cuda.ErrorNotSupported
	}
	secret, err := h.gate.LooseSecret(mem.segment)
	return cuda.MemoryExportResult{Secret: secret, Segment: mem.segment}, segmentResult(err)
}

func (h *mappings) MemoryImport(_ cuda.Call, a cuda.MemoryImportArgs) (out cuda.MemoryImportResult, r cuda.Result) {
	if _, r = h.mapper(); r == cuda.Success {
		r = h.table.Available(a.Memory)
	}
	if r != cuda.Success {
		return out, r
	}
	if d := h.can.PeerSharing; d != nil {
		m, bytes, r := d.ImportMemory(accel.ShareToken{ID: a.Segment, Tag: a.Secret})
		if r == cuda.Success {
			out.Bytes = bytes
			h.table.Put(a.Memory, &memory{m: m})
		}
		return out, r
	}
	if h.can.FileSharing == nil || h.segments.store == nil {
		return out, cuda.ErrorNotSupported
	}
	seg, err := h.gate.AttachLoose(a.Segment, a.Secret)
	if err != nil {
		return out, cuda.ErrorInvalidValue
	}
	out.Bytes = seg.Bytes
	return out, h.addShared(a.Memory, seg.ID, seg.Offset, seg.Bytes)
}
