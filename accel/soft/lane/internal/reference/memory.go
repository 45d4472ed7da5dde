package reference

import "math/big"

// Windows of the generic address space: different from the engine's, as no result may depend on them.
const (
	sharedWindow = 0xa << 60
	localWindow  = 0xb << 60
)

// spaceOf returns the state space of a generic address.
func spaceOf(addr uint64) string {
	switch addr >> 60 {
	case sharedWindow >> 60:
		return "shared"
	case localWindow >> 60:
		return "local"
	}
	return "global"
}

func window(space string) uint64 {
	switch space {
	case "shared":
		return sharedWindow
	case "local":
		return localWindow
	}
	return 0
}

// generic executes cvta.
func (w *warp) generic(in *inst, t *thread) {
	v := w.read(t, &in.args[1], in.types[0])
	for _, space := range []string{"shared", "local", "global"} {
		switch {
		case !in.mods[space]:
		case in.mods["to"]:
			v -= window(space)
		default:
			v += window(space)
		}
	}
	w.write(t, &in.args[0], v)
}

// memory returns the n bytes at an address.
func (w *warp) memory(in *inst, t *thread, o *operand, n int) (mem []byte, space string) {
	at := uint64(o.add)
	for _, s := range []string{"global", "shared", "local", "param", "const"} {
		if in.mods[s] {
			space = s
		}
	}
	at += w.read(t, o.base, typ{'u', 64})
	if o.base.kind == symbol {
		space = w.vars[o.base.text].space
	}
	if space == "" {
		space = spaceOf(at)
		at -= window(space)
	}
	switch space {
	case "shared":
		mem = w.shared
	case "local":
		mem = t.local
	case "param":
		mem = w.launch.Params
	default:
		for base, m := range w.launch.Memory {
			if at >= base && at-base < uint64(len(m)) {
				mem, at = m, at-base
				break
			}
		}
	}
	if at%uint64(n) != 0 || at+uint64(n) > uint64(len(mem)) {
		fail("%s: %d bytes at %s %#x", in.text, n, space, at)
	}
	return mem[at : at+uint64(n)], space
}

func little(mem []byte) (v uint64) {
	for i, b := range mem {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func setLittle(mem []byte, v uint64) {
	for i := range mem {
		mem[i] = byte(v >> (8 * i))
	}
}

// elements returns the registers of a vector, or the only one.
func elements(o *operand) []operand {
	if o.kind == vector {
		return o.list
	}
	return []operand{*o}
}

func (w *warp) load(in *inst, t *thread) {
	as, list := in.types[0], elements(&in.args[0])
	mem, _ := w.memory(in, t, &in.args[1], len(list)*as.bits/8)
	old := append([]byte(nil), mem...)
	for i := range list {
		v := little(old[i*as.bits/8 : (i+1)*as.bits/8])
		w.write(t, &list[i], wrap(whole(v, as), 64))
	}
}

func (w *warp) store(in *inst, t *thread) {
	as, list := in.types[0], elements(&in.args[1])
	mem, _ := w.memory(in, t, &in.args[0], len(list)*as.bits/8)
	for i := range list {
		setLittle(mem[i*as.bits/8:(i+1)*as.bits/8], w.read(t, &list[i], as))
	}
}

// atomic executes atom and red.
func (w *warp) atomic(in *inst, t *thread) {
	as, args := in.types[0], in.args
	if in.packed {
		as.bits *= 2
	}
	if in.op == "atom" {
		args = args[1:]
	}
	mem, space := w.memory(in, t, &args[0], as.bits/8)
	old := little(mem)
	b, c := w.read(t, &args[1], as), uint64(0)
	if len(args) > 2 {
		c = w.read(t, &args[2], as)
	}
	setLittle(mem, updated(in, space, old, b, c))
	if in.op == "atom" {
		w.write(t, &in.args[0], old)
	}
}

// updated returns the value that an atomic instruction stores.
func updated(in *inst, space string, old, b, c uint64) uint64 {
	as := in.types[0]
	one := big.NewInt(1)
	x, y := whole(old, as), whole(b, as)
	switch {
	case in.packed:
		f := formatOf(as)
		return atomicSum(f, space, old>>16, b>>16)<<16 | atomicSum(f, space, cut(old, 16), cut(b, 16))
	case as.float():
		return atomicSum(formatOf(as), space, old, b)
	case in.mods["exch"]:
		return b
	case in.mods["cas"]:
		return either(old == b, c, old)
	case in.mods["inc"]:
		return either(x.Cmp(y) >= 0, 0, wrap(new(big.Int).Add(x, one), as.bits))
	case in.mods["dec"]:
		return either(x.Sign() == 0 || x.Cmp(y) > 0, b, wrap(new(big.Int).Sub(x, one), as.bits))
	}
	return wrap(reduce(in, x, y), as.bits)
}

// atomicSum is atom.add of floats: in global memory, f32 flushes subnormal numbers.
func atomicSum(f format, space string, a, b uint64) uint64 {
	flush := f == single && space == "global"
	if flush {
		a, b = f.flush(a), f.flush(b)
	}
	r := f.add(a, b, "rn")
	if flush {
		r = f.flush(r)
	}
	return r
}
