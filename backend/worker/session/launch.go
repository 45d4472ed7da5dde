package session

import (
	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// uncountedParams is the number of parameter bytes up to which a launch's parameters are not counted in
// backpressure.kept.
const uncountedParams = 1 << 10

// launchCooperative is a flag of a launch: its blocks can synchronize with each other. The second to fourth byte hold
// the cluster's dimensions.
const launchCooperative = 1

// launches handles kernel launches. The poller owns it.
type launches struct {
	base
	modules *modules
	streams *streams
	launch  accel.Launch // the one that is being submitted
}

// Launch replies when the kernel is queued. The device has read its parameters by then.
func (h *launches) Launch(c cuda.Call, a cuda.LaunchArgs) cuda.Result {
	g, st, r := h.streams.forWork(c)
	if r != cuda.Success {
		return r
	}
	m, r := h.modules.table.Get(a.Function >> 32)
	if r != cuda.Success {
		return r
	}
	index := uint32(a.Function)
	if m.g != g || index >= uint32(len(m.costs)) {
		return cuda.ErrorInvalidHandle
	}
	w := &h.launch
	*w = launchOf(m, a)
	cost := &m.costs[index]
	sub := h.work.newSubmission(g, c.Stream)
	w.Spent = sub.spent
	if cost.perBlock.Load() == 0 && !g.prepared(w) {
		h.gate.Prepare(func() { g.prepare(w) })
	}
	sub.launch, sub.cost, sub.blocks = w, cost, blockCount(a.Grid)
	if len(a.Params) > uncountedParams {
		sub.params = len(a.Params)
		h.work.load.kept.Add(int64(sub.params))
	}
	return h.work.submitGated(sub, st, w, gate.Compute, h.work.predict(cost, w))
}

// launchOf returns the guest's launch. The module has the function.
func launchOf(m *module, a cuda.LaunchArgs) accel.Launch {
	return accel.Launch{
		Module: m.m, Function: int(uint32(a.Function)), Grid: a.Grid, Block: a.Block, SharedBytes: a.SharedBytes, Params: a.Params,
		Cooperative: a.Flags&launchCooperative != 0, Cluster: [3]uint32{a.Flags >> 8 & 0xff, a.Flags >> 16 & 0xff, a.Flags >> 24},
	}
}

// blockCount returns the number of blocks of a grid; the device rejects a grid too large for it.
func blockCount(grid [3]uint32) uint64 {
	return uint64(grid[0]) * uint64(grid[1]&0xffff) * uint64(grid[2]&0xffff)
}
