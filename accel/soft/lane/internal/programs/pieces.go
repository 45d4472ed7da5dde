package programs

import (
	"fmt"
	"strings"
)

// conversion generates a cvt.
func (w *writer) conversion() string {
	integers := []string{"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"}
	to, from := oneOf(w, integers...), oneOf(w, integers...)
	mods := ""
	switch w.IntN(8) {
	case 5:
		to, from = oneOf(w, "f32", "f64"), oneOf(w, "f16", "bf16")
	case 6:
		to = oneOf(w, "f16", "bf16")
		if w.IntN(2) == 0 {
			from = oneOf(w, "f32", "f64")
		}
		mods = oneOf(w, ".rn", ".rz", ".rm", ".rp") + w.flushed(from) + oneOf(w, "", ".sat")
	case 7:
		from = oneOf(w, "f16", "bf16")
		if w.IntN(3) == 0 {
			to = from
		}
		mods = oneOf(w, ".rni", ".rzi", ".rmi", ".rpi") + oneOf(w, "", ".sat")
	case 0: // between integers
		mods = oneOf(w, "", ".sat")
	case 1:
		from = oneOf(w, "f32", "f64")
		mods = oneOf(w, ".rni", ".rzi", ".rmi", ".rpi") + w.flushed(from) + oneOf(w, "", ".sat")
	case 2:
		to = oneOf(w, "f32", "f64")
		mods = oneOf(w, ".rn", ".rz", ".rm", ".rp") + oneOf(w, "", ".sat")
	case 3: // to whole numbers
		to = oneOf(w, "f32", "f64")
		from = to
		mods = oneOf(w, ".rni", ".rzi", ".rmi", ".rpi") + w.flushed(from) + oneOf(w, "", ".sat")
	case 4:
		pair := oneOf(w, [2]string{"f32", "f64"}, [2]string{"f64", "f32"}, [2]string{"f32", "f32"})
		to, from = pair[0], pair[1]
		if to == "f32" && from == "f64" {
			mods = oneOf(w, ".rn", ".rz", ".rm", ".rp")
		}
		mods += w.flushed("f32") + oneOf(w, "", ".sat")
	}
	d := w.target(w.holder(to))
	text := fmt.Sprintf("cvt%s.%s.%s %s, %s", mods, to, from, d, w.register(w.holder(from)))
	if to == "f64" {
		text += canonical(d)
	}
	return text
}

func (w *writer) flushed(t string) string {
	if t == "f32" {
		return oneOf(w, "", ".ftz")
	}
	return ""
}

// holder returns the letter of a register that can hold a value of a type.
func (w *writer) holder(t string) rune {
	switch t {
	case "f32":
		return 'r'
	case "f64":
		return 'l'
	case "f16", "bf16":
		return 'h'
	}
	switch t[1:] {
	case "8", "16":
		return oneOf(w, 'h', 'r', 'l')
	case "32":
		return oneOf(w, 'r', 'r', 'l')
	}
	return 'l'
}

// move generates pieces that split and join registers, and read special registers.
func (w *writer) move() string {
	r := func(letter rune) string { return w.register(letter) }
	t := func(letter rune) string { return fmt.Sprintf("%%%c%d", letter, w.IntN(8)) }
	a, b := w.IntN(8), w.IntN(8)
	two := func(letter string) string {
		if a == b {
			return fmt.Sprintf("{_, %%%s%d}", letter, a)
		}
		return fmt.Sprintf("{%%%s%d, %%%s%d}", letter, a, letter, b)
	}
	return oneOf(w,
		fmt.Sprintf("mov.b64 %s, %s", two("r"), r('l')),
		fmt.Sprintf("mov.b32 %s, %s", two("h"), r('r')),
		fmt.Sprintf("mov.b64 {%%h0, %%h%d, _, %%h7}, %s", 1+w.IntN(6), r('l')),
		fmt.Sprintf("mov.b64 %s, {%s, %s}", t('l'), r('r'), r('r')),
		fmt.Sprintf("mov.b32 %s, {%s, %s}", t('r'), r('h'), r('h')),
		fmt.Sprintf("mov.b64 %s, {%s, %s, %s, %s}", t('l'), r('h'), r('h'), r('h'), r('h')),
		fmt.Sprintf("mov.u32 %s, %%%s", t('r'), oneOf(w, "laneid", "warpid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge", "ctaid.x", "nctaid.x")),
		fmt.Sprintf("isspacep.%s %s, %s", oneOf(w, "global", "shared", "local"), w.predicate(), oneOf(w, "%at", "%sg", "%lg")),
	)
}

// chain generates an addition, subtraction or multiplication of several words.
func (w *writer) chain() string {
	letter, types := oneOf(w, 'r', 'r', 'l'), "32"
	if letter == 'l' {
		types = "64"
	}
	var list []string
	n := 2 + w.IntN(3)
	for i := range n {
		op := oneOf(w, "add", "add", "sub", "mad.lo", "mad.hi")
		if i > 0 {
			op = strings.Replace(op, "mad.", "madc.", 1)
			op = strings.Replace(strings.Replace(op, "add", "addc", 1), "sub", "subc", 1)
			op = strings.Replace(op, "maddc", "madc", 1)
		}
		if i < n-1 || w.IntN(2) == 0 {
			op += ".cc"
		}
		text := fmt.Sprintf("%s.%s%s %s, %s, %s", op, oneOf(w, "u", "s"), types, w.target(letter), w.value(letter, 6), w.value(letter, 6))
		if strings.HasPrefix(op, "mad") {
			text += ", " + w.value(letter, 6)
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// place is memory that belongs to a thread.
type place struct {
	space, base string
	from, size  int
}

func (w *writer) place() place {
	return oneOf(w,
		place{".global", "%at", scratch, 128}, place{"", "%at", scratch, 128},
		place{".shared", "%s", 0, 32}, place{".shared", "%s32", 0, 32}, place{"", "%sg", 0, 32},
		place{".local", "m", 0, 64}, place{"", "%lg", 0, 64})
}

// access generates loads and stores, of vectors too.
func (w *writer) access() string {
	t := oneOf(w, "b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64")
	n := map[string]int{"8": 1, "16": 2, "32": 4, "64": 8}[t[1:]]
	letter := w.holder(strings.Replace(t, "b", "u", 1))
	count := oneOf(w, 1, 1, 1, 2, 4)
	if count*n > 16 {
		count = 16 / n
	}
	p := w.place()
	at := fmt.Sprintf("[%s+%d]", p.base, p.from+w.IntN(p.size/(count*n))*count*n)
	before := ""
	if w.IntN(4) == 0 && p.base == "%at" { // at an address that depends on a value
		before = fmt.Sprintf("and.b32 %%m, %s, 0x70; cvt.u64.u32 %%b, %%m; add.u64 %%b, %%b, %%at; ", w.register('r'))
		at = fmt.Sprintf("[%%b+%d]", scratch)
	}
	if w.IntN(8) == 0 && p.base == "m" {
		at = fmt.Sprintf("[m+%d]", w.IntN(64/(count*n))*count*n)
	}
	vector := map[int]string{1: "", 2: ".v2", 4: ".v4"}[count]
	order := oneOf(w, "", "", ".volatile")
	if w.IntN(2) == 0 {
		return before + fmt.Sprintf("st%s%s%s.%s %s, %s", order, p.space, vector, t, at, w.list(letter, count, false))
	}
	return before + fmt.Sprintf("ld%s%s%s.%s %s, %s", order, p.space, vector, t, w.list(letter, count, true), at)
}

// list returns a register or a vector of them, different ones if they are written.
func (w *writer) list(letter rune, count int, written bool) string {
	if count == 1 {
		if written {
			return fmt.Sprintf("%%%c%d", letter, w.IntN(8))
		}
		return w.register(letter)
	}
	var names []string
	first := w.IntN(8)
	for i := range count {
		names = append(names, fmt.Sprintf("%%%c%d", letter, (first+i*3)%8))
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// accumulators are the operations on words that all threads update, each by one operation. The order of the updates
// does not matter.
var accumulators = [...]string{"add.u32", "add.u64", "min.s32", "max.u32", "min.u64", "max.s64", "and.b32", "or.b64", "xor.b32", "xor.b64", "inc.u32", "min.s64", "max.s32", "min.u32"}

// atomic generates an update of an accumulator, or of a word of the thread's own.
func (w *writer) atomic() string {
	if w.IntN(2) == 0 {
		i := w.IntN(len(accumulators))
		op := accumulators[i]
		letter := 'r'
		if strings.HasSuffix(op, "64") {
			letter = 'l'
		}
		value := w.value(letter, 4)
		if strings.HasPrefix(op, "inc") {
			value = "11" // the same for all
		}
		space, at := ".global", "%acc"
		if w.IntN(2) == 0 {
			space, at = ".shared", "sacc"
		}
		if w.IntN(2) == 0 {
			return fmt.Sprintf("red%s.%s [%s+%d], %s", space, op, at, 8*i, value)
		}
		return fmt.Sprintf("atom%s.%s _, [%s+%d], %s", space, op, at, 8*i, value)
	}
	p := w.place()
	for p.base == "m" || p.base == "%lg" {
		p = w.place()
	}
	op := oneOf(w, "add.u32", "add.s32", "add.u64", "inc.u32", "dec.u32", "min.s32", "min.u32", "max.s32", "max.u32", "min.s64", "min.u64", "max.s64", "max.u64",
		"and.b32", "or.b32", "xor.b32", "and.b64", "or.b64", "xor.b64", "exch.b32", "exch.b64", "cas.b32", "cas.b64", "add.f32", "add.f64")
	letter, n := 'r', 4
	if strings.HasSuffix(op, "64") {
		letter, n = 'l', 8
	}
	d := fmt.Sprintf("%%%c%d", letter, w.IntN(8))
	at := fmt.Sprintf("[%s+%d]", p.base, p.from+w.IntN(p.size/n)*n)
	b := w.register(letter)
	text := fmt.Sprintf("atom%s.%s %s, %s, %s", p.space, op, d, at, b)
	if strings.HasPrefix(op, "cas") {
		if w.IntN(2) == 0 { // compare with the word's value
			text = fmt.Sprintf("ld%s.b%d %s, %s; atom%s.%s %s, %s, %s", p.space, 8*n, b0(letter), at, p.space, op, d, at, b0(letter))
		}
		text += ", " + w.register(letter)
	}
	if op == "add.f64" { // the NaN in memory is open too
		return fmt.Sprintf("%s%s; ld%s.b64 %%b, %s%s; st%s.b64 %s, %%b", text, canonical(d), p.space, at, canonical("%b"), p.space, at)
	}
	return text
}

func b0(letter rune) string { return map[rune]string{'r': "%m", 'l': "%b"}[letter] }

// warp generates a piece that the threads of a warp execute together.
func (w *writer) warp() string {
	r, p := func() string { return fmt.Sprintf("%%r%d", w.IntN(8)) }, w.predicate
	here := "activemask.b32 %m; "
	if w.IntN(3) == 0 { // not all of them have the same mask
		here += fmt.Sprintf("and.b32 %%k, %%t, %d; match.any.sync.b32 %%m, %%k, %%m; ", 1+w.IntN(31))
	}
	switch w.IntN(8) {
	case 0:
		return fmt.Sprintf("vote.%s.pred %s, %s%s", oneOf(w, "all", "any", "uni"), p(), oneOf(w, "", "!"), p())
	case 1:
		return fmt.Sprintf("vote.ballot.b32 %s, %s%s", r(), oneOf(w, "", "!"), p())
	case 2:
		return here + fmt.Sprintf("vote.sync.%s.pred %s, %s%s, %%m", oneOf(w, "all", "any", "uni"), p(), oneOf(w, "", "!"), p())
	case 3:
		return here + fmt.Sprintf("vote.sync.ballot.b32 %s, %s, %%m", r(), p())
	case 4:
		return here + fmt.Sprintf("redux.sync.%s %s, %s, %%m", oneOf(w, "add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"), r(), w.register('r'))
	case 5:
		return here + fmt.Sprintf("match.%s.sync.b32 %s, %s, %%m", oneOf(w, "any", "all"), r(), w.register('r'))
	case 6:
		return here + fmt.Sprintf("match.%s.sync.b64 %s, %s, %%m", oneOf(w, "any", "all"), r(), w.register('l'))
	}
	if w.IntN(2) == 0 {
		return "activemask.b32 " + r()
	}
	// From the last thread that is here.
	return here + fmt.Sprintf("clz.b32 %%k, %%m; sub.u32 %%k, 31, %%k; shfl.sync.idx.b32 %s|%s, %s, %%k, 31, %%m", r(), p(), r())
}

// meeting returns where all threads of a block that live are together.
func (w *writer) meeting() string {
	whole := !w.exits && w.p.Threads%32 == 0
	r, p := fmt.Sprintf("%%r%d", w.IntN(8)), w.predicate()
	switch w.IntN(10) {
	case 0:
		return fmt.Sprintf("bar.red.popc.u32 %s, 0, %s%s", r, oneOf(w, "", "!"), p)
	case 1:
		return fmt.Sprintf("bar.red.%s.pred %s, %d, %s", oneOf(w, "and", "or"), w.predicate(), w.IntN(16), p)
	case 2: // through shared memory
		return fmt.Sprintf("st.shared.b64 [%%x], %%l%d; bar.sync 0; add.u32 %%m, %%t, %d; rem.u32 %%m, %%m, %%nt; mul.wide.u32 %%b, %%m, 8; add.u64 %%b, %%b, %%xo; ld.shared.b64 %%l%d, [%%b]; bar.sync 0",
			w.IntN(8), w.IntN(70), w.IntN(8))
	case 3: // between threads of a warp, without a barrier
		return fmt.Sprintf("bar.sync 0; st.volatile.shared.b32 [%%x], %%r%d; xor.b32 %%m, %%t, %d; mul.wide.u32 %%b, %%m, 8; add.u64 %%b, %%b, %%xo; ld.volatile.shared.b32 %%r%d, [%%b]; bar.sync 0",
			w.IntN(8), w.IntN(32), w.IntN(8))
	case 4, 5:
		if whole {
			return w.shuffle()
		}
	case 6:
		if whole {
			return fmt.Sprintf("barrier.sync %d, %d", 1+w.IntN(15), w.p.Threads)
		}
	case 8, 9:
		if whole {
			return w.matrix()
		}
	case 7:
		if whole { // one warp alone
			return "mov.u32 %m, %warpid; setp.eq.u32 %q, %m, 0; @%q bar.sync 3, 32; bar.sync 0"
		}
	}
	return oneOf(w, "bar.sync 0", "bar.warp.sync -1", "membar.cta; bar.sync 5")
}

// shuffle generates a shfl of a whole warp.
func (w *writer) shuffle() string {
	segment := oneOf(w, 0, 0x10, 0x18, 0x1c, 0x1e, 0x1f)
	clamp := 31
	mode := oneOf(w, "up", "down", "bfly", "idx")
	if mode == "up" {
		clamp = 0
	}
	if w.IntN(4) == 0 {
		clamp = w.IntN(32)
	}
	b := fmt.Sprint(w.IntN(32))
	if w.IntN(2) == 0 {
		b = w.register('r')
	}
	d := fmt.Sprintf("%%r%d", w.IntN(8))
	if w.IntN(2) == 0 {
		d += "|" + w.predicate()
	}
	return fmt.Sprintf("shfl.sync.%s.b32 %s, %s, %s, 0x%x, -1", mode, d, w.register('r'), b, segment<<8|clamp)
}
