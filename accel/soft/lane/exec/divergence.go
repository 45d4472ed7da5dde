package exec

import "math/rand/v2"

// divergence has the fragments into which the threads of a group have parted, and the joins where they meet again.
type divergence struct {
	frags  []fragment // those that do not run now
	parked int        // fragments that are
	joins  []join
	spare  []int32 // joins to use again
	// patience is the number of back edges and turns that fragments may still take before the next check for threads
	// that have waited at a join since the last check, which releases them. Each such release lowers limit, as spinning
	// tends to recur.
	patience, limit int
}

// fragment is a set of threads at the same instruction.
type fragment struct {
	m    mask
	pc   int32 // block
	join int32 // where it is awaited, or -1
	at   int32 // how many instructions of the block it has executed
	bar  int32 // block of the barrier that it waits at, or runnable, or parked
	id   int32 // of that barrier
	sp   int   // start of the frame of its threads
}

// join is a place where parted threads meet again.
type join struct {
	pc                int32
	outer             int32
	arrived, expected mask
	overdue           bool // the arrived have waited for all that patience allows
	call              bool // threads arrive by returning from a function
	sp                int  // of the fragment that continues
}

// at reports whether a fragment that comes to a block has come to the join.
func (j *join) at(pc int32) bool { return j.pc == pc && !j.call }

// runnables returns the number of runnable fragments.
func (d *divergence) runnables() (n int) {
	for i := range d.frags {
		if d.frags[i].bar == runnable {
			n++
		}
	}
	return n
}

// atBarrier reports whether a fragment waits at a barrier of the block.
func (d *divergence) atBarrier() bool {
	for i := range d.frags {
		if d.frags[i].bar >= 0 {
			return true
		}
	}
	return false
}

func (d *divergence) newJoin(j join) int32 {
	if n := len(d.spare); n > 0 {
		i := d.spare[n-1]
		d.spare = d.spare[:n-1]
		d.joins[i] = j
		return i
	}
	d.joins = append(d.joins, j)
	return int32(len(d.joins) - 1)
}

// meet puts the fragment into the join it has come to.
func (d *divergence) meet(f *fragment) {
	j := &d.joins[f.join]
	j.arrived = j.arrived.or(&f.m)
	d.complete(f.join)
}

// complete releases the threads of a join at which all have arrived.
func (d *divergence) complete(i int32) {
	j := &d.joins[i]
	if j.arrived != j.expected {
		return
	}
	if !j.arrived.empty() {
		d.frags = append(d.frags, fragment{m: j.arrived, pc: j.pc, join: j.outer, bar: runnable, sp: j.sp})
	}
	d.drop(i)
}

// drop frees a join for another use.
func (d *divergence) drop(i int32) {
	d.joins[i] = join{pc: -1}
	d.spare = append(d.spare, i)
}

// postpone puts the fragment behind all other runnable ones.
func (d *divergence) postpone(f fragment) {
	d.frags = append(d.frags, fragment{})
	copy(d.frags[1:], d.frags)
	d.frags[0] = f
}

// remind marks the joins overdue at which threads wait. It reports whether there are any.
func (d *divergence) remind() (any bool) {
	for i := range d.joins {
		if j := &d.joins[i]; !j.arrived.empty() {
			j.overdue, any = true, true
		}
	}
	return any
}

// release lets the threads go that have arrived at an overdue join, without waiting for the others. It reports whether
// there was one. The innermost join is released first, since its threads often reach the outer ones; none is omitted,
// as joins are marked overdue again only when none is overdue.
func (d *divergence) release() bool {
	for i := len(d.joins) - 1; i >= 0; i-- {
		j := &d.joins[i]
		if !j.overdue {
			continue
		}
		f := fragment{m: j.arrived, pc: j.pc, join: j.outer, bar: runnable, sp: j.sp}
		j.expected = j.expected.without(&j.arrived)
		j.arrived, j.overdue = mask{}, false
		d.frags = append(d.frags, f)
		return true
	}
	return false
}

// rejoin merges a fragment into one at the same instruction, or appends it.
func (d *divergence) rejoin(f fragment) {
	for k := range d.frags {
		if o := &d.frags[k]; o.bar == runnable && o.pc == f.pc && o.at == f.at && o.join == f.join && o.sp == f.sp {
			o.m = o.m.or(&f.m)
			return
		}
	}
	d.frags = append(d.frags, f)
}

// pickAny returns one of the runnable fragments, or -1.
func (d *divergence) pickAny(chance *rand.PCG) int {
	n := d.runnables()
	if n == 0 {
		return -1
	}
	k := int(chance.Uint64() % uint64(n))
	for i := range d.frags {
		if d.frags[i].bar == runnable {
			if k == 0 {
				return i
			}
			k--
		}
	}
	return -1
}
