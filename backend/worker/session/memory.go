package session

import (
	"maps"

	"pegasus/backend/gate"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// allocations owns the allocations of the guest process, and handles the calls about device memory. The poller owns it.
type allocations struct {
	base
	owners map[uint64]*guestContext // context of the allocation at an address
}

func (h *allocations) dropContext(g *guestContext) {
	maps.DeleteFunc(h.owners, func(_ uint64, owner *guestContext) bool { return owner == g })
}

// MemAlloc leaves quotas to the device, which requests them (AddressLayout.Quota), since only the device can determine
// when memory is free again.
func (h *allocations) MemAlloc(c cuda.Call, a cuda.MemAllocArgs) (out cuda.MemAllocResult, r cuda.Result) {
	g, r := h.contexts.forWork(c)
	if r != cuda.Success {
		return out, r
	}
	if a.Size == 0 {
		return out, cuda.ErrorInvalidValue
	}
	if a.Size > h.total || len(h.owners) >= handles.Max {
		return out, cuda.ErrorOutOfMemory
	}
	h.gate.Rest() // it may wait for frees, behind kernels
	if out.Address, r = g.ctx.Alloc(a.Size); r != cuda.Success {
		return out, g.report(r)
	}
	h.owners[out.Address] = g
	return out, cuda.Success
}

func (h *allocations) MemFree(_ cuda.Call, a cuda.MemFreeArgs) cuda.Result {
	g := h.owners[a.Address]
	if g == nil {
		return cuda.ErrorInvalidValue
	}
	delete(h.owners, a.Address)
	return g.report(g.ctx.Free(a.Address, func() {}))
}

func (h *allocations) MemInfo(c cuda.Call) (out cuda.MemInfoResult, r cuda.Result) {
	if _, r := h.contexts.of(c); r != cuda.Success {
		return out, r
	}
	used, quota := h.gate.Memory(gate.DeviceMemory)
	out.Total = min(quota, h.total)
	out.Free = out.Total - min(used, out.Total)
	if d := h.can.Coordination; d != nil {
		out.Free = min(out.Free, d.MemoryFree())
	}
	return out, cuda.Success
}
