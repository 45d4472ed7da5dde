package compile

import "pegasus/accel/ptx"

// maxPoll bounds the instructions of a loop that only waits.
const maxPoll = 64

// polls returns the instructions of short loops that only wait, in two groups:
//
//   - Loads and atomics without a volatile or similar mark that access the same address in each iteration of a loop
//     that stores nothing. A compiler would have moved the load out of the loop, unless it has to observe stores of
//     other threads. So this finds code that polls with loads past the cache, behind a fence, or by adding 0.
//   - Reads of a clock in a loop that changes no memory but the thread's own.
func polls(body *ptx.Body, blocks []ptx.Block) map[*ptx.Inst]bool {
	found := map[*ptx.Inst]bool{}
	for k := range blocks {
		for _, s := range blocks[k].Succs {
			first, end := blocks[s].First, blocks[k].End
			if s <= k && end-first <= maxPoll {
				pollsOf(body.Insts[first:end], found)
			}
		}
	}
	return found
}

// pollsOf adds the polling instructions of a loop.
func pollsOf(loop []ptx.Inst, found map[*ptx.Inst]bool) {
	changes := map[int32]bool{}
	stores, meets := false, false
	for i := range loop {
		switch loop[i].Op {
		case opSt:
			if !private(&loop[i]) {
				return
			}
			stores = true
		case opAtom, opBar, opBarrier:
			meets = true
		case opRed, opCall:
			return
		}
		loop[i].Visit(func(r int32, written bool) {
			if written {
				changes[r] = true
			}
		})
	}
	for i := range loop {
		in := &loop[i]
		if in.Op == opMov && in.Args[1].Kind == ptx.Special && tellsTime(ptx.SpecialReg(in.Args[1].Imm)) && !meets {
			found[in] = true
		}
		if stores || in.Op != opLd && in.Op != opAtom || in.Mods.Has(ptx.NC) || in.Mods.Space() != ptx.Global && in.Mods.Space() != ptx.Generic {
			continue
		}
		if o := &in.Args[1]; o.Var != nil || o.Reg == ptx.None || !changes[o.Reg] && (o.Index == nil || !changes[o.Index.Reg]) {
			found[in] = true
		}
	}
}

var opLd, opSt, opAtom, opMov = ptx.OpOf("ld"), ptx.OpOf("st"), ptx.OpOf("atom"), ptx.OpOf("mov")

// tellsTime reports whether a special register is a clock.
func tellsTime(s ptx.SpecialReg) bool { return s >= ptx.Clock && s <= ptx.GlobalTimerHi }

// private reports whether a store writes memory of the thread alone.
func private(in *ptx.Inst) bool {
	space := in.Mods.Space()
	if v := in.Args[0].Var; v != nil {
		space = v.Space
	}
	return space == ptx.Local || space == ptx.ParamSpace
}

// looksAnew reports whether a load or store accesses memory that other threads may read or write at the same time.
func (l *lowerer) looksAnew(in *ptx.Inst) bool {
	return in.Mods.First(ptx.RN, ptx.Volatile, ptx.Relaxed, ptx.Acquire, ptx.Release) != ptx.RN || in.Mods.Has(ptx.CacheCV) || l.polling[in]
}
