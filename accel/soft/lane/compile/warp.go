package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

func lowerShfl(l *lowerer, in *ptx.Inst) {
	o := &in.Args[0]
	d, q := l.dst(o, false), ir.Place{}
	if o.Pair != ptx.None {
		q = l.reg(o.Pair)
	}
	op := &ir.Warp{Mode: in.Mods.First(ptx.Idx, ptx.Up, ptx.Down, ptx.BFly)}
	if len(in.Args) > 4 {
		op.Member = l.src(&in.Args[4], ptx.U32)
	}
	l.emit(ir.Instr{Op: ir.OpShuffle, Dst: d, Dst2: q, A: l.src(&in.Args[1], in.Type), B: l.src(&in.Args[2], ptx.U32), C: l.src(&in.Args[3], ptx.U32), Detail: op})
}

func lowerVote(l *lowerer, in *ptx.Inst) {
	a, not := l.pred(&in.Args[1])
	if in.Args[0].Kind == ptx.Sink {
		return
	}
	op := &ir.Warp{Mode: in.Mods.First(ptx.Uni, ptx.All, ptx.Any, ptx.Ballot)}
	if len(in.Args) > 2 {
		op.Member = l.src(&in.Args[2], ptx.U32)
	}
	l.emit(ir.Instr{Op: ir.OpVote, Dst: l.reg(in.Args[0].Reg), C: a, NotC: not, Detail: op})
}

func lowerActivemask(l *lowerer, in *ptx.Inst) {
	l.emit(ir.Instr{Op: ir.OpVote, Dst: l.dst(&in.Args[0], false), Detail: &ir.Warp{Mode: ptx.Ballot}})
}

func lowerMatch(l *lowerer, in *ptx.Inst) {
	wide := in.Type.Size() == 8
	op := &ir.Warp{Mode: in.Mods.First(ptx.Any, ptx.All, ptx.Any), Wide: wide, Member: l.src(&in.Args[2], ptx.U32)}
	q := ir.Place{}
	if in.Args[0].Pair != ptx.None {
		q = l.reg(in.Args[0].Pair)
	}
	l.emit(ir.Instr{Op: ir.OpMatch, Dst: l.dst(&in.Args[0], false), Dst2: q, A: l.src(&in.Args[1], in.Type), Detail: op})
}

// lowerElect lowers elect.sync: the lowest lane of those that take part is the leader.
func lowerElect(l *lowerer, in *ptx.Inst) {
	q := ir.Place{}
	if in.Args[0].Pair != ptx.None {
		q = l.reg(in.Args[0].Pair)
	}
	op := &ir.Warp{Member: l.src(&in.Args[1], ptx.U32)}
	l.emit(ir.Instr{Op: ir.OpElect, Dst: l.dst(&in.Args[0], false), Dst2: q, Detail: op})
}

func lowerRedux(l *lowerer, in *ptx.Inst) {
	op := &ir.Warp{Mode: in.Mods.First(ptx.Add, ptx.Min, ptx.Max, ptx.And, ptx.Or, ptx.Xor), Signed: in.Type.Signed(), Member: l.src(&in.Args[2], ptx.U32)}
	if in.Type == ptx.F32 {
		op.CombineFloats = extremum(in, arith.Pick(in.Mods.Has(ptx.Max), arith.Lesser32, arith.Greater32))
		op.Abs = in.Mods.Has(ptx.Abs)
	}
	l.emit(ir.Instr{Op: ir.OpReduce, Dst: l.dst(&in.Args[0], false), A: l.src(&in.Args[1], in.Type), Detail: op})
}

// lowerWarpBarrier lowers bar.warp.sync, after which threads see the earlier stores of the others.
func lowerWarpBarrier(l *lowerer, in *ptx.Inst) {
	l.emit(ir.Instr{Op: ir.OpWarpBarrier, Detail: &ir.Warp{Member: l.src(&in.Args[0], ptx.U32)}})
}
