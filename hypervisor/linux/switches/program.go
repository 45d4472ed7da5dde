package switches

import "github.com/cilium/ebpf/asm"

// The arguments of the tracepoints, as BPF programs find them; btf_trace_sched_switch
// and btf_trace_sched_wakeup in the kernel's BTF.
const (
	switchPreempted = 0  // bool
	switchPrevious  = 8  // struct task_struct *
	switchNext      = 16 // struct task_struct *
	switchState     = 24 // unsigned int: why the previous one stops; 0: it stays runnable
	wakeupTask      = 0  // struct task_struct *
)

// taskDead is TASK_DEAD of the kernel's sched.h: the thread's last switch.
const taskDead = 0x80

// offsets are the offsets of fields in the kernel's task_struct.
type offsets struct {
	pid, cpu            int16 // 32 bits
	ran, waited, chosen int16 // 64 bits
}

// Registers that outlive calls of helpers.
const (
	context = asm.R6
	thread  = asm.R7 // number of the thread
	slot    = asm.R8
	now     = asm.R9 // 0: not read yet
)

// onSwitch returns the program at sched_switch. A thread that isn't watched costs a read of one cache line of the
// index.
func onSwitch(at offsets) asm.Instructions {
	var p asm.Instructions
	p = append(p,
		asm.Mov.Reg(context, asm.R1),
		asm.Mov.Imm(now, 0),
		asm.LoadMem(asm.R1, context, switchPrevious, asm.DWord),
		asm.LoadMem(thread, asm.R1, at.pid, asm.Word))
	p = append(p, find("previous", "next")...)
	p = append(p, begin("previous", asm.JEq.Imm(asm.R1, int32(Ended), "next"))...)
	p = append(p, count(at, switchPrevious)...)
	p = append(p,
		asm.Mov.Imm(asm.R1, int32(Runnable)),
		asm.LoadMem(asm.R2, context, switchPreempted, asm.DWord),
		asm.And.Imm(asm.R2, 0xff),
		asm.JNE.Imm(asm.R2, 0, "stopped"),
		asm.LoadMem(asm.R2, context, switchState, asm.DWord),
		asm.Mov.Reg32(asm.R2, asm.R2),
		asm.JEq.Imm(asm.R2, 0, "stopped"),
		asm.Mov.Imm(asm.R1, int32(Blocked)),
		asm.And.Imm(asm.R2, taskDead),
		asm.JEq.Imm(asm.R2, 0, "stopped"),
		asm.Mov.Imm(asm.R1, int32(Ended)))
	p = append(p, end("stopped")...)

	p = append(p,
		asm.LoadMem(asm.R1, context, switchNext, asm.DWord).WithSymbol("next"),
		asm.LoadMem(thread, asm.R1, at.pid, asm.Word))
	p = append(p, find("following", "done")...)
	p = append(p, begin("following", asm.JEq.Imm(asm.R1, int32(Ended), "done"))...)
	p = append(p, count(at, switchNext)...)
	p = append(p, // the kernel counts the wait that ends, and this run, only now
		asm.LoadMem(asm.R2, slot, slotTimes, asm.DWord),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(slot, slotTimes, asm.R2, asm.DWord),
		asm.JNE.Imm(asm.R1, int32(Runnable), "starts"),
		asm.Mov.Reg(asm.R3, now),
		asm.LoadMem(asm.R2, slot, slotSince, asm.DWord),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.LoadMem(asm.R2, slot, slotWaited, asm.DWord),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.StoreMem(slot, slotWaited, asm.R2, asm.DWord),
		asm.FnGetSmpProcessorId.Call().WithSymbol("starts"),
		asm.StoreMem(slot, slotCPU, asm.R0, asm.Word),
		asm.Mov.Imm(asm.R1, int32(Running)))
	p = append(p, end("started")...)
	return append(p,
		asm.Mov.Imm(asm.R0, 0).WithSymbol("done"),
		asm.Return())
}

// onWakeup returns the program at sched_wakeup, which may also fire for threads that have not stopped yet.
func onWakeup(at offsets) asm.Instructions {
	var p asm.Instructions
	p = append(p,
		asm.Mov.Reg(context, asm.R1),
		asm.Mov.Imm(now, 0),
		asm.LoadMem(asm.R1, context, wakeupTask, asm.DWord),
		asm.LoadMem(thread, asm.R1, at.pid, asm.Word))
	p = append(p, find("woken", "done")...)
	p = append(p, begin("woken", asm.JNE.Imm(asm.R1, int32(Blocked), "done"))...)
	p = append(p, count(at, wakeupTask)...)
	p = append(p,
		asm.LoadMem(asm.R2, asm.R4, at.cpu, asm.Word),
		asm.StoreMem(slot, slotCPU, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R1, int32(Runnable)))
	p = append(p, end("waits")...)
	return append(p,
		asm.Mov.Imm(asm.R0, 0).WithSymbol("done"),
		asm.Return())
}

// find looks up the thread in the index and sets slot and, in R0, its key; it jumps to missing if the thread isn't
// watched. All of it reads one line of 32 bytes.
func find(name, missing string) asm.Instructions {
	found := name + ", found"
	p := asm.Instructions{
		asm.JEq.Imm(thread, 0, missing), // an idle processor's thread, and an empty place of the index
		asm.Mov.Reg(asm.R1, thread),
		asm.And.Imm(asm.R1, buckets-1),
		asm.LSh.Imm(asm.R1, bucketShift),
		tableAt(asm.R2, 0),
		asm.Add.Reg(asm.R2, asm.R1),
	}
	var hits asm.Instructions
	for way := range ways {
		hit := name + ", way " + string(rune('0'+way))
		p = append(p,
			asm.LoadMem(asm.R0, asm.R2, int16(way*keyBytes), asm.DWord),
			asm.JEq.Reg32(asm.R0, thread, hit))
		hits = append(hits,
			tableAt(slot, uint32(indexBytes+way*slotBytes)).WithSymbol(hit),
			asm.Ja.Label(found))
	}
	p = append(p, asm.Ja.Label(missing))
	p = append(p, hits...)
	return append(p,
		asm.LSh.Imm(asm.R1, slotShift-keyShift).WithSymbol(found),
		asm.Add.Reg(slot, asm.R1))
}

// begin begins a change of the slot that find found: R1 is the thread's state so far. unless tests R1 and jumps away
// if there is nothing to change; that is skipped when the slot still has the state of an earlier thread.
func begin(name string, unless asm.Instruction) asm.Instructions {
	known, ours := name+", known", name+", ours"
	return asm.Instructions{
		asm.LoadMem(asm.R1, slot, slotKey, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R0, known),
		asm.LoadMem(asm.R1, slot, slotState, asm.Word),
		unless,

		asm.StoreMem(asm.R10, -8, asm.R0, asm.DWord).WithSymbol(known),
		asm.JNE.Imm(now, 0, name+", timed"),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(now, asm.R0),

		asm.Mov.Imm(asm.R1, 1).WithSymbol(name + ", timed"),
		asm.FetchAdd.Mem(slot, asm.R1, asm.Word, slotSequence),
		asm.LoadMem(asm.R1, slot, slotState, asm.Word),
		asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord),
		asm.LoadMem(asm.R2, slot, slotKey, asm.DWord),
		asm.JEq.Reg(asm.R0, asm.R2, ours),
		asm.StoreMem(slot, slotKey, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(Unknown)),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(ours),
	}
}

// count copies the kernel's own counters of a thread, an argument of the tracepoint, which stays in R4. Sums of our
// own would keep the error of each missed event; one of some hundred switches was missed.
func count(at offsets, argument int16) asm.Instructions {
	p := asm.Instructions{asm.LoadMem(asm.R4, context, argument, asm.DWord)}
	for _, c := range []struct{ from, to int16 }{{at.ran, slotRan}, {at.waited, slotWaited}, {at.chosen, slotTimes}} {
		p = append(p, asm.LoadMem(asm.R2, asm.R4, c.from, asm.DWord), asm.StoreMem(slot, c.to, asm.R2, asm.DWord))
	}
	return p
}

// end ends a change: R1 is the thread's state from now on.
func end(label string) asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(slot, slotState, asm.R1, asm.Word).WithSymbol(label),
		asm.StoreMem(slot, slotSince, now, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		asm.FetchAdd.Mem(slot, asm.R1, asm.Word, slotSequence),
	}
}

// tableAt loads a pointer into the table, which the loader relocates.
func tableAt(r asm.Register, offset uint32) asm.Instruction {
	return asm.LoadMapValue(r, 0, offset).WithReference(tableName)
}
