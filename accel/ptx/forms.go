package ptx

import (
	"fmt"
	"strings"
)

// formText lists every instruction form, close to the manual's syntax:
//
//	opcodes | modifiers | types | operands
//
// A modifier is required unless it ends with "?"; "a/b" is one of them. A
// second, a third and a fourth list of types follow colons. Operands, capital for written:
//
//	A a  a register (or, if read, an immediate) of the first type
//	B b  of the second type
//	C c  a 32-bit one; W w one of double width
//	P p  a predicate, p possibly negated; Q one predicate or a pair p|q
//	E    a register of the first type, perhaps with a predicate r|p; G a 32-bit one
//	D d  a 32-bit one of a video instruction, perhaps with a selector or a sign
//	R r  a register at least as wide as the type (ld, st, cvt), or a vector of them
//	Y y  a fragment of a matrix: a vector of as many registers as the form determines
//	h    a 64-bit cache policy; n the size of a copy, or an alignment;
//	     i how much of it to read, or a predicate for none
//	k    a 16-bit mask; s a 64-bit size
//	M    an address; m one in shared memory; L a label; F a call
//	T    a texture or surface with coordinates, o without, O without brackets; g a vector of 32-bit ones
//	V v  anything that mov takes; x a vector of any kind
//	?    after a letter: optional
//
// Order of modifiers in the source does not matter, as for ptxas.
const formText = `
add sub | sat? | s32 | Aaa
add sub | | u16 u32 u64 s16 s64 | Aaa
add sub addc subc | cc? | u32 s32 u64 s64 b32 b64 | Aaa
add sub mul | rn/rz/rm/rp? ftz? sat? | f32 | Aaa
add sub mul | rn/rz/rm/rp? | f64 | Aaa
add sub mul | rn/rz/rm/rp? ftz? | f32x2 | Aaa
mul | hi/lo | u16 u32 u64 s16 s32 s64 | Aaa
mul | wide | u16 u32 s16 s32 | Waa
mad | hi/lo cc? | u16 u32 u64 s16 s32 s64 | Aaaa
madc | hi/lo cc? | u32 u64 s32 s64 | Aaaa
mad | hi sat | s32 | Aaaa
mad | wide | u16 u32 s16 s32 | Waaw
mad fma | rn/rz/rm/rp? ftz? sat? | f32 | Aaaa
mad fma | rn/rz/rm/rp? | f64 | Aaaa
fma | rn/rz/rm/rp ftz? | f32x2 | Aaaa
mul24 | hi/lo | u32 s32 | Aaa
mad24 | hi/lo sat? | u32 s32 | Aaaa
sad | | u16 u32 u64 s16 s32 s64 | Aaaa
div | | u16 u32 u64 s16 s32 s64 | Aaa
rem | | u16 u32 u64 s16 s32 s64 | Aaa
div | approx/full/rn/rz/rm/rp? ftz? | f32 | Aaa
div | rn/rz/rm/rp? | f64 | Aaa
abs neg | | s16 s32 s64 | Aa
abs neg | ftz? | f32 | Aa
abs neg | | f64 | Aa
min max | | u16 u32 u64 s16 s32 s64 | Aaa
min max | relu | s32 | Aaa
min max | relu? | u16x2 s16x2 | Aaa
add | | u16x2 s16x2 | Aaa
min max | ftz? NaN? | f32 | Aaa
min max | ftz? NaN? xorsign abs | f32 | Aaa
min max | ftz? NaN? abs? | f32 | Aaaa
min max | | f64 | Aaa
rcp sqrt | approx/rn/rz/rm/rp? ftz? | f32 | Aa
rcp sqrt | rn/rz/rm/rp? | f64 | Aa
rsqrt sin cos lg2 ex2 | approx? ftz? | f32 | Aa
rcp rsqrt | approx ftz | f64 | Aa
rsqrt | approx | f64 | Aa
tanh | approx | f32 | Aa
copysign | | f32 f64 | Aaa
testp | finite/infinite/number/notanumber/normal/subnormal | f32 f64 | Pa
popc clz | | b32 b64 | Ca
bfind | shiftamt? | u32 u64 s32 s64 | Ca
brev | | b32 b64 | Aa
bfe | | u32 u64 s32 s64 | Aacc
bfi | | b32 b64 | Aaacc
bmsk | clamp/wrap? | b32 | Aaa
szext | clamp/wrap | u32 s32 | Aaa
fns | | b32 | Aaaa
dp4a | | u32 s32 : u32 s32 | Cccc
dp2a | hi/lo | u32 s32 : u32 s32 | Cccc
prmt | f4e/b4e/rc8/ecl/ecr/rc16? | b32 | Aaaa
lop3 | | b32 | Aaaac
lop3 | and/or | b32 | Eaaacp
and or xor | | b16 b32 b64 | Aaa
and or xor | | pred | Ppp
not cnot | | b16 b32 b64 | Aa
not | | pred | Pp
shl | | b16 b32 b64 | Aac
shr | | b16 b32 b64 u16 u32 u64 s16 s32 s64 | Aac
shf | l/r clamp/wrap | b32 | Aaac
setp | eq/ne/lt/le/gt/ge/lo/ls/hi/hs | u16 u32 u64 s16 s32 s64 b16 b32 b64 | Qaa
setp | eq/ne/lt/le/gt/ge/lo/ls/hi/hs and/or/xor | u16 u32 u64 s16 s32 s64 b16 b32 b64 | Qaap
setp | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ftz? | f32 f64 | Qaa
setp | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor ftz? | f32 f64 | Qaap
set | eq/ne/lt/le/gt/ge/lo/ls/hi/hs ftz? | u32 s32 b32 f32 : b16 b32 b64 u16 u32 u64 s16 s32 s64 | Abb
set | eq/ne/lt/le/gt/ge/lo/ls/hi/hs and/or/xor ftz? | u32 s32 b32 f32 : b16 b32 b64 u16 u32 u64 s16 s32 s64 | Abbp
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ftz? | u32 s32 b32 f32 : f32 f64 | Abb
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor ftz? | u32 s32 b32 f32 : f32 f64 | Abbp
vadd vsub vabsdiff vmin vmax | sat? | u32 s32 : u32 s32 : u32 s32 | Ddd
vadd vsub vabsdiff vmin vmax | sat? add/min/max? | u32 s32 : u32 s32 : u32 s32 | Dddc
vshl vshr | sat? clamp/wrap | u32 s32 : u32 s32 : u32 | Ddd
vshl vshr | sat? clamp/wrap add/min/max? | u32 s32 : u32 s32 : u32 | Dddc
vmad | sat? po? shr7/shr15? | u32 s32 : u32 s32 : u32 s32 | Dddd
vset | eq/ne/lt/le/gt/ge | u32 s32 : u32 s32 | Ddd
vset | eq/ne/lt/le/gt/ge add/min/max? | u32 s32 : u32 s32 | Dddc
vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 | sat? add? | u32 s32 : u32 s32 : u32 s32 | Dddc
vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 | sat? add? | u32 s32 : u32 s32 : u32 s32 | Dddc
vset2 vset4 | eq/ne/lt/le/gt/ge add? | u32 s32 : u32 s32 | Dddc
selp | | b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 | Aaap
slct | ftz? | b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 : s32 f32 | Aaab
mov | | b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 pred b8 u8 s8 | Vv
alloca | | u32 u64 | Aan?
stacksave | | u32 u64 | A
stackrestore | | u32 u64 | a
mov | v2/v4/v8 | b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | Rr
cvt | rn/rz/rm/rp? ftz? sat? | f32 f64 : u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | Rr
cvt | rni/rzi/rmi/rpi ftz? sat? | u8 u16 u32 u64 s8 s16 s32 s64 : f32 f64 | Rr
cvt | rni/rzi/rmi/rpi ftz? sat? | f32 f64 : f32 f64 | Rr
cvt | sat? | u8 u16 u32 u64 s8 s16 s32 s64 : u8 u16 u32 u64 s8 s16 s32 s64 | Rr
cvta | to? global/shared/local/const/param | u32 u64 | Av
isspacep | global/shared/local/const/param | | Px
istypep | texref/samplerref/surfref | | PO
ld | mmio? volatile/relaxed/acquire/weak? cta/gpu/sys/cluster? global/shared/const/local/param? nc? v2/v4/v8? ca/cg/cs/lu/cv? L1::evict_first/L1::evict_last/L1::evict_normal/L1::evict_unchanged/L1::no_allocate? L2::evict_first/L2::evict_last/L2::evict_normal? L2::64B/L2::128B/L2::256B? | b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | RM
ldu | global? v2/v4/v8? | b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | RM
st | mmio? volatile/relaxed/release/weak? cta/gpu/sys/cluster? global/shared/local/param? v2/v4/v8? wb/cg/cs/wt? L1::evict_first/L1::evict_last/L1::evict_normal/L1::evict_unchanged/L1::no_allocate? L2::evict_first/L2::evict_last/L2::evict_normal? | b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | Mr
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? add | u32 u64 s32 s64 f32 f64 | AMa
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? min/max | u32 u64 s32 s64 | AMa
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? inc/dec | u32 | AMa
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? and/or/xor | u32 u64 s32 s64 b32 b64 | AMa
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? exch | u32 u64 s32 s64 b32 b64 f32 f64 | AMa
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? cas | b16 b32 b64 u32 u64 s32 s64 | AMaa
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? v2/v4 add | f32 | RMr
red | relaxed/release? cta/gpu/sys/cluster? global? v2/v4 add | f32 | Mr
red | relaxed/release? cta/gpu/sys/cluster? global/shared? add | u32 u64 s32 s64 f32 f64 | Ma
red | relaxed/release? cta/gpu/sys/cluster? global/shared? min/max | u32 u64 s32 s64 | Ma
red | relaxed/release? cta/gpu/sys/cluster? global/shared? inc/dec | u32 | Ma
red | relaxed/release? cta/gpu/sys/cluster? global/shared? and/or/xor | u32 u64 s32 s64 b32 b64 | Ma
membar | cta/gl/sys | | -
fence | sc/acq_rel/acquire/release? cta/gpu/sys/cluster | | -
fence | acquire/release sync_restrict::shared::cta/sync_restrict::shared::cluster cluster | | -
fence | mbarrier_init release cluster | | -
fence membar | proxy alias/async global/shared? | | -
fence | proxy async::generic acquire/release sync_restrict::shared::cta/sync_restrict::shared::cluster cluster | | -
applypriority | global? L2::evict_normal | | Mc
discard | global? L2 | | Mc
griddepcontrol | launch_dependents/wait | | -
setmaxnreg | inc/dec sync aligned | u32 | a
prefetch | global/local? L1/L2/L2::evict_last/L2::evict_normal | | M
prefetchu | L1 | | M
bar barrier | sync cta? aligned? | | cc?
bar barrier | arrive cta? aligned? | | cc
bar barrier | red and/or cta? aligned? | pred | Pcc?p
bar barrier | red popc cta? aligned? | u32 | Acc?p
bar | warp sync | | c
shfl | up/down/bfly/idx | b32 | Eacc
shfl | sync up/down/bfly/idx | b32 | Eaccc
vote | all/any/uni sync? | pred | Ppc?
vote | ballot sync? | b32 | Apc?
activemask | | b32 | A
match | any sync | b32 b64 | Cac
match | all sync | b32 b64 | Gac
elect | sync | | Gc
redux | sync add/min/max | u32 s32 | Aac
redux | sync and/or/xor | b32 | Aac
redux | sync min/max abs? NaN? | f32 | Aac
tex | base? 1d/2d/3d/a1d/a2d v4 | u32 s32 f32 : s32 f32 | xT
tex | base? cube/acube v4 | u32 s32 f32 : f32 | xT
tex | level 1d/2d/3d/a1d/a2d/cube/acube v4 | u32 s32 f32 : f32 | xTc
tex | grad 1d/2d/3d/a1d/a2d/cube/acube v4 | u32 s32 f32 : f32 | xTgg
tld4 | r/g/b/a 2d/a2d/cube/acube v4 | u32 s32 f32 : f32 | xT
txq | width/height/depth/channel_data_type/channel_order/normalized_coords/array_size/num_mipmap_levels/num_samples | b32 | Co
txq | force_unnormalized_coords/filter_mode/addr_mode_0/addr_mode_1/addr_mode_2 | b32 | Co
txq | level width/height/depth | b32 | Coc
suq | width/height/depth/channel_data_type/channel_order/array_size/memory_layout | b32 | Co
suld | b 1d/2d/3d/a1d/a2d ca/cg/cs/cv? v2/v4? trap/clamp/zero | b8 b16 b32 b64 | RT
suld | p 1d/2d/3d/a1d/a2d ca/cg/cs/cv? v2/v4? trap/clamp/zero | b32 u32 s32 f32 | RT
sust | b 1d/2d/3d/a1d/a2d wb/cg/cs/wt? v2/v4? trap/clamp/zero | b8 b16 b32 b64 | Tr
sust | p 1d/2d/3d/a1d/a2d wb/cg/cs/wt? v2/v4? trap/clamp/zero | b32 u32 s32 f32 | Tr
sured | b add/min/max 1d/2d/3d trap/clamp/zero | u32 s32 u64 s64 | Ta
sured | b and/or 1d/2d/3d trap/clamp/zero | b32 b64 | Ta
sured | p add/min/max/and/or 1d/2d/3d trap/clamp/zero | b32 | Ta
bra | uni? | | L
brx | idx uni? | | cL
call | uni? | | F
ret exit | uni? | | -
trap brkpt | | | -
nanosleep | | u32 | a
pmevent | mask? | | c
`

// form is one line of the table for one opcode.
type form struct {
	required []Mods // one of each set must be there
	allowed  Mods
	types    [4]uint64 // sets of types, by bit
	least    int       // number of operands
	letters  []string  // of the operands, if there are least of them, one more, and so on
}

// Op is an opcode; opNames has its text.
type Op uint8

// opByName, opNames and forms are the parsed table.
var opByName, opNames, forms = readForms()

func (o Op) String() string { return opNames[o] }

// OpOf returns the opcode of that name, for tables built at start-up.
func OpOf(name string) Op {
	o, ok := opByName[name]
	if !ok {
		panic("ptx: no opcode " + name)
	}
	return o
}

func readForms() (byName map[string]Op, names []string, forms [][]form) {
	byName = map[string]Op{}
	for _, line := range strings.Split(formText+matrixText+asyncText, "\n") {
		col := strings.Split(line, "|")
		if len(col) < 4 {
			continue
		}
		// "p|q" never occurs in the table, so the bars separate the columns.
		var f form
		f.parseOperands(strings.Trim(col[3], " -"))
		f.parseMods(strings.Fields(col[1]))
		for i, list := range strings.Split(col[2], ":") {
			f.types[i] = typeSet(list)
		}
		for _, name := range strings.Fields(col[0]) {
			o, ok := byName[name]
			if !ok {
				o = Op(len(names))
				byName[name] = o
				names = append(names, name)
				forms = append(forms, nil)
			}
			forms[o] = append(forms[o], f)
		}
	}
	return byName, names, forms
}

// parseOperands sets the letters of the operands. Missing optional operands are the first ones.
func (f *form) parseOperands(letters string) {
	f.least = len(letters) - 2*strings.Count(letters, "?")
	for missing := strings.Count(letters, "?"); missing >= 0; missing-- {
		var there []byte
		left := missing
		for i := range len(letters) {
			switch optional := i+1 < len(letters) && letters[i+1] == '?'; {
			case letters[i] == '?':
			case optional && left > 0:
				left--
			default:
				there = append(there, letters[i])
			}
		}
		f.letters = append(f.letters, string(there))
	}
}

func (f *form) parseMods(words []string) {
	for _, w := range words {
		name, optional := strings.CutSuffix(w, "?")
		var set Mods
		for _, alt := range strings.Split(name, "/") {
			m, ok := modByName[alt]
			if !ok {
				panic("ptx: form table: modifier " + alt)
			}
			set.Add(m)
			f.allowed.Add(m)
		}
		if !optional {
			f.required = append(f.required, set)
		}
	}
}

func typeSet(list string) (set uint64) {
	for _, name := range strings.Fields(list) {
		t, ok := typeByName[name]
		if !ok {
			panic("ptx: form table: type " + name)
		}
		set |= 1 << t
	}
	return set
}

func (f *form) matches(in *Inst) bool {
	if !in.Mods.within(&f.allowed) {
		return false
	}
	for i := range f.required {
		if !in.Mods.meets(&f.required[i]) {
			return false
		}
	}
	return typeIn(in.Type, f.types[0]) && typeIn(in.Type2, f.types[1]) && typeIn(in.Type3, f.types[2]) && typeIn(in.Type4, f.types[3])
}

func typeIn(t Type, set uint64) bool {
	if set == 0 {
		return t == NoType
	}
	return set>>t&1 != 0
}

// opcode is the parsed form of an opcode's text.
type opcode struct {
	inst  Inst    // without line, guard and operands
	forms []*form // that its modifiers and types match
	// form, mods and template are those of the last instruction with this opcode.
	form     string
	mods     Mods
	template int
}

// maxOpcodes bounds the cached opcodes; programs have some hundred.
const maxOpcodes = 1 << 12

// opcodeTable has the opcodes that were parsed, by their text.
type opcodeTable map[string]*opcode

// opcode parses an opcode, or returns the result of an earlier parse.
func (t opcodeTable) opcode(text string) (*opcode, error) {
	if o := t[text]; o != nil {
		return o, nil
	}
	o := &opcode{inst: Inst{Guard: None}, template: -1}
	if err := decode(text, &o.inst); err != nil {
		return nil, err
	}
	for i := range forms[o.inst.Op] {
		if f := &forms[o.inst.Op][i]; f.matches(&o.inst) {
			o.forms = append(o.forms, f)
		}
	}
	if len(t) < maxOpcodes {
		t[text] = o
	}
	return o, nil
}

// decode splits an opcode with its modifiers.
func decode(text string, in *Inst) error {
	name, rest, _ := strings.Cut(text, ".")
	op, ok := opByName[name]
	if !ok {
		return fmt.Errorf("unknown instruction %s", text)
	}
	in.Op = op
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, ".")
		if part == "b128" && (op == opLd || op == opSt || op == opMov) {
			part = "b64"
			in.Mods.doubleVector()
		}
		if t, ok := typeByName[part]; ok {
			switch {
			case in.Type == NoType:
				in.Type = t
			case in.Type2 == NoType:
				in.Type2 = t
			case in.Type3 == NoType:
				in.Type3 = t
			case in.Type4 == NoType:
				in.Type4 = t
			default:
				return fmt.Errorf("unknown form %s", text)
			}
			continue
		}
		m, ok := modByName[part]
		if !ok {
			return fmt.Errorf("unknown form %s (modifier .%s)", text, part)
		}
		in.Mods.Add(in.Mods.second(m))
	}
	return nil
}
