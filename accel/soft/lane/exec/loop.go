package exec

import (
	"pegasus/accel/soft/lane/gen"
	"pegasus/accel/soft/lane/ir"
)

// Machine code of a loop executes several iterations at once, unit by unit. For that the affine registers that the loop
// computes have to be computed in advance: the executor executes the instructions for them twice, and extrapolates. The
// compiler has checked that they grow by equal amounts (gen.Loop). The executor checks that no number leaves its range on
// the way, that all threads stay in the loop, and that all accesses of all iterations are within their memory.

const (
	maxIterations = 1 << 16
	// loopWork bounds the instructions of a call of a loop's code, over units of 16 lanes, so that it takes some ten
	// microseconds.
	loopWork = 1 << 16
	// maxGrowth bounds the change of a register from one iteration to the next, so that no sum overflows.
	maxGrowth = 1 << 40
)

// growth is a progression at the same point of two iterations that follow one another.
type growth struct {
	now, next affine
	width     int    // bits
	bias      uint64 // half the range, if the numbers have a sign
}

// by returns the difference between iterations.
func (w *growth) by() int64 {
	if w.width == 32 {
		return int64(int32(w.next.first - w.now.first))
	}
	return int64(w.next.first - w.now.first)
}

// steady reports whether the progression grows, or shrinks, by one moderate number for all lanes.
func (w *growth) steady() bool {
	d := w.by()
	return w.now.step == w.next.step && d > -maxGrowth && d < maxGrowth
}

// after returns the progression n iterations later.
func (w *growth) after(n int64) affine {
	a := w.now
	a.first += uint64(n * w.by())
	if w.width == 32 {
		a = a.narrow()
	}
	return a
}

// within reports whether no lane's number leaves the range of its width in n iterations.
func (w *growth) within(n int64, last int64) bool {
	from, to, ok := w.now.ends(w.width, w.bias, last)
	if !ok {
		return false
	}
	d := n * w.by()
	if w.width == 32 {
		return (from+uint64(d))>>32 == 0 && (to+uint64(d))>>32 == 0
	}
	return (from+uint64(d) >= from) == (d >= 0) && (to+uint64(d) >= to) == (d >= 0)
}

// loopState has the numbers of a loop's iterations. A worker owns it.
type loopState struct {
	values    []growth // of the registers that the loop writes, behind an iteration
	extended  []growth // operands that are extended
	addresses []growth // of access groups
	reach     []extent // of access groups
	compared  [2]growth
}

// extent is the part of its region that an access group reaches in the first iteration.
type extent struct{ low, high uint64 }

// observe returns the numbers of a place. ok is false if it has none.
func (g runner) observe(p ir.Place, width int) (a affine, ok bool) {
	if a, ok = g.progression(p); width == 32 {
		a = a.narrow()
	}
	return a, ok
}

// observeAll records the numbers of places at the same point of an iteration, and again, in the next one. It
// returns false if one has none, or does not grow steadily.
func (g runner) observeAll(list *[]growth, places []gen.Number, again bool) bool {
	if !again {
		*list = (*list)[:0]
	}
	for i, p := range places {
		a, ok := g.observe(p.Place, p.Width)
		if !ok {
			return false
		}
		if !again {
			w := growth{now: a, width: p.Width}
			if p.Signed {
				w.bias = 1 << (p.Width - 1)
			}
			*list = append(*list, w)
			continue
		}
		w := &(*list)[i]
		if w.next = a; !w.steady() {
			return false
		}
	}
	return true
}

// enterLoop executes some iterations of a loop, each up to the branch at its end. It returns false, without effect, if
// the iteration is to be executed in another way.
func (g runner) enterLoop(b *block, n *native) bool {
	span, l := n.span, n.span.Loop
	if !g.full || !g.act.whole || g.act.lo != 0 {
		return false
	}
	s, f := &g.w.loop, &g.w.frame
	if !g.observeAll(&s.addresses, l.Addresses, false) || !g.observeAll(&s.extended, l.Ahead, false) {
		return false
	}
	s.reach = s.reach[:0]
	for i := range span.Groups {
		r, ok := g.prepare(&span.Groups[i], &f.Accesses[i])
		if !ok {
			return false
		}
		s.reach = append(s.reach, r)
	}
	order := b.code[l.Compare].order
	compared := l.Compare > span.At || g.observeCompared(l, order)
	g.execute(b.code[span.At+span.Count:])
	count := int64(1)
	if compared {
		count = g.iterations(b, n)
	}
	for i := range s.addresses {
		f.Accesses[i].Delta = 0
		if count > 1 {
			f.Accesses[i].Delta = uint64(s.addresses[i].by()) * max(span.Groups[i].First.Scale, 1)
		}
	}
	f.Iterations = uint64(count)
	entry := n.loop
	if n.same != 0 && g.sameAddresses(n) {
		entry = n.same
	}
	g.launch(entry)
	g.pass(span.Holds * int(count))
	g.watched += b.Cost * int(count-1)
	g.fuel -= int(count - 1)
	return true
}

// sameAddresses reports whether all lanes have the same address in each access group. The growth is the same for all.
func (g runner) sameAddresses(n *native) bool {
	for i := range n.span.Groups {
		if g.w.loop.addresses[i].now.step != 0 {
			return false
		}
	}
	return true
}

// execute executes instructions that can't fail.
func (g runner) execute(code []instr) {
	for i := range code {
		in := &code[i]
		in.exec(g.group, in)
	}
}

// iterations returns how many iterations of a loop machine code may execute. The registers that the loop computes have
// their values behind the first of them; iterations gives them those behind the last.
func (g runner) iterations(b *block, n *native) int64 {
	s, span, l := &g.w.loop, n.span, n.span.Loop
	units := (g.act.to - g.act.from) / gen.UnitLanes
	most := min(maxIterations, int64(loopWork/(units*(span.Count+4))), int64(g.fuel))
	if most < 2 || !g.observeAll(&s.values, l.Written, false) {
		return 1
	}
	order := b.code[l.Compare].order
	behind := l.Compare > span.At
	if behind && !g.observeCompared(l, order) {
		return 1
	}
	if yes, ok := order.all(s.compared[0].now, s.compared[1].now, int64(g.threads-1)); !ok || yes != l.Continue {
		return 1
	}
	first := len(s.extended)
	if ok := g.appendAll(&s.extended, l.Behind); !ok {
		return 1
	}
	condition := g.preds[b.Guard]
	count := int64(1)
	g.execute(b.code[:span.At])
	if g.observeAll(&s.addresses, l.Addresses, true) && g.observeAgain(s.extended[:first], l.Ahead) && (behind || g.againCompared(l, order.width)) {
		g.execute(b.code[span.At+span.Count:])
		if g.observeAgain(s.extended[first:], l.Behind) && g.observeAll(&s.values, l.Written, true) && (!behind || g.againCompared(l, order.width)) {
			count = g.possible(s, span, order, l.Continue, most)
		}
	}
	g.preds[b.Guard] = condition
	for i, p := range l.Written {
		d := &g.affine[p.Place.Affine]
		*d = s.values[i].now
		if count > 1 {
			*d = s.values[i].after(count - 1)
		}
		d.form = inNumbers
	}
	return count
}

func (g runner) appendAll(list *[]growth, places []gen.Number) bool {
	var more []growth
	ok := g.observeAll(&more, places, false)
	*list = append(*list, more...)
	return ok
}

func (g runner) observeAgain(list []growth, places []gen.Number) bool {
	return g.observeAll(&list, places, true)
}

// observeCompared records the operands of a loop's condition.
func (g runner) observeCompared(l *gen.Loop, o *order) bool {
	for i, p := range l.Compared {
		a, ok := g.observe(p, o.width)
		if !ok {
			return false
		}
		g.w.loop.compared[i] = growth{now: a, width: o.width, bias: o.bias}
	}
	return true
}

// againCompared records the operands of a loop's condition in the next iteration.
func (g runner) againCompared(l *gen.Loop, width int) bool {
	s := &g.w.loop
	for i, p := range l.Compared {
		a, ok := g.observe(p, width)
		if s.compared[i].next = a; !ok || !s.compared[i].steady() {
			return false
		}
	}
	return true
}

// possible returns how many iterations, up to most, all threads stay in the loop for, with all numbers in their ranges
// and all accesses in their memory. The first iteration is.
func (g runner) possible(s *loopState, span *gen.Span, o *order, goes bool, most int64) int64 {
	last := int64(g.threads - 1)
	for i := range span.Groups {
		ag, w, r := &span.Groups[i], &s.addresses[i], s.reach[i]
		d := w.by() * int64(max(ag.First.Scale, 1))
		size := g.w.cache[ag.First.Cache].size
		switch {
		case uint64(d)&ag.First.Align != 0 || d <= -maxGrowth || d >= maxGrowth:
			return 1
		case d > 0:
			most = min(most, 1+int64((size-1-r.high)/uint64(d)))
		case d < 0:
			most = min(most, 1+int64(r.low/uint64(-d)))
		}
	}
	if o.equal {
		most = min(most, o.until(&s.compared, goes))
	}
	// All conditions hold for the iterations up to some number, and for none behind it.
	holds := func(n int64) bool {
		for i := range s.addresses {
			if !s.addresses[i].within(n, last) {
				return false
			}
		}
		for i := range s.extended {
			if !s.extended[i].within(n, last) {
				return false
			}
		}
		a, b := &s.compared[0], &s.compared[1]
		if !a.within(n, last) || !b.within(n, last) {
			return false
		}
		yes, ok := o.all(a.after(n), b.after(n), last)
		return ok && yes == goes
	}
	low, high := int64(0), most
	for high-low > 1 {
		if mid := (low + high) / 2; holds(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low + 1
}

// until returns the number of iterations for which a comparison for equality has the outcome of the first one.
func (o *order) until(w *[2]growth, goes bool) int64 {
	a, b := &w[0], &w[1]
	if a.now.step != b.now.step {
		return 1
	}
	apart, closer := int64(b.now.first-a.now.first), a.by()-b.by()
	if o.width == 32 {
		apart = int64(uint64(uint32(b.now.first))) - int64(uint64(uint32(a.now.first)))
	}
	switch differ := o.decide(0, 1) == goes; {
	case !differ && closer != 0:
		return 1
	case !differ || closer == 0 || apart%closer != 0 || apart/closer < 0:
		return maxIterations
	}
	return apart / closer
}
