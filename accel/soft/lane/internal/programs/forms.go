package programs

import (
	"fmt"
	"strings"
)

// formText lists the instructions that programs are made of, a line each: the
// parts of an opcode, with alternatives between bars (one may be empty), then
// a letter for each operand:
//
//	H R L  a register of 16, 32 or 64 bits, written
//	D      one of 64 bits that may become a NaN: its payload is made canonical
//	P Q    a predicate, or a pair of them, written
//	h r l  a register or an immediate of that size, read
//	f g    the same, as f32 or f64
//	e i    a register with f16 or bf16, or a pair of them
//	O      a pair of predicates, written
//	n      a shift count; b a position; x a byte, immediate
//	p      a predicate; o one that may be negated
const formText = `
add|sub .u16|.s16 Hhh
add|sub .u32|.s32 Rrr
add|sub .u64|.s64 Lll
add|sub .sat.s32 Rrr
mul .lo|.hi .u16|.s16 Hhh
mul .lo|.hi .u32|.s32 Rrr
mul .lo|.hi .u64|.s64 Lll
mul .wide .u16|.s16 Rhh
mul .wide .u32|.s32 Lrr
mad .lo|.hi .u16|.s16 Hhhh
mad .lo|.hi .u32|.s32 Rrrr
mad .lo|.hi .u64|.s64 Llll
mad .hi.sat.s32 Rrrr
mad .wide .u16|.s16 Rhhr
mad .wide .u32|.s32 Lrrl
mul24 .lo|.hi .u32|.s32 Rrr
mad24 .lo|.hi .u32|.s32 Rrrr
mad24 .hi.sat.s32 Rrrr
sad .u16|.s16 Hhhh
sad .u32|.s32 Rrrr
sad .u64|.s64 Llll
div|rem .u16|.s16 Hhh
div|rem .u32|.s32 Rrr
div|rem .u64|.s64 Lll
abs|neg .s16 Hh
abs|neg .s32 Rr
abs|neg .s64 Ll
min|max .u16|.s16 Hhh
min|max .u32|.s32 Rrr
min|max .u64|.s64 Lll
add .u16x2|.s16x2 Rrr
min|max .u16x2 Rrr
min|max |.relu .s16x2 Rrr
min|max .relu.s32 Rrr
popc|clz .b32 Rr
popc|clz .b64 Rl
bfind |.shiftamt .u32|.s32 Rr
bfind |.shiftamt .u64|.s64 Rl
brev .b32 Rr
brev .b64 Ll
bfe .u32|.s32 Rrbb
bfe .u64|.s64 Llbb
bfi .b32 Rrrbb
bfi .b64 Lllbb
bmsk .clamp|.wrap .b32 Rbb
szext .clamp|.wrap .u32|.s32 Rrn
fns .b32 Rrbr
dp4a .u32|.s32 .u32|.s32 Rrrr
dp2a .lo|.hi .u32|.s32 .u32|.s32 Rrrr
prmt |.f4e|.b4e|.rc8|.ecl|.ecr|.rc16 .b32 Rrrr
lop3 .b32 Rrrrx
and|or|xor .b16 Hhh
and|or|xor .b32 Rrr
and|or|xor .b64 Lll
not|cnot .b16 Hh
not|cnot .b32 Rr
not|cnot .b64 Ll
and|or|xor .pred Ppp
not .pred Pp
mov .pred Pp
shl .b16 Hhn
shl .b32 Rrn
shl .b64 Lln
shr .b16|.u16|.s16 Hhn
shr .b32|.u32|.s32 Rrn
shr .b64|.u64|.s64 Lln
shf .l|.r .clamp|.wrap .b32 Rrrn
add|sub|mul |.rn|.rz|.rm|.rp |.ftz |.sat .f32 Rff
add|sub|mul |.rn|.rz|.rm|.rp .f64 Dgg
fma .rn|.rz|.rm|.rp |.ftz |.sat .f32 Rfff
fma .rn|.rz|.rm|.rp .f64 Dggg
mad .rn|.rz|.rm|.rp |.ftz |.sat .f32 Rfff
div .rn|.rz|.rm|.rp |.ftz .f32 Rff
div .rn|.rz|.rm|.rp .f64 Dgg
rcp|sqrt .rn|.rz|.rm|.rp |.ftz .f32 Rf
rcp|sqrt .rn|.rz|.rm|.rp .f64 Dg
abs|neg |.ftz .f32 Rf
abs|neg .f64 Dg
min|max |.ftz |.NaN .f32 Rff
min|max .f64 Dgg
copysign .f32 Rff
copysign .f64 Lgg
testp .finite|.infinite|.number|.notanumber|.normal|.subnormal .f32 Pf
testp .finite|.infinite|.number|.notanumber|.normal|.subnormal .f64 Pg
setp .eq|.ne|.lt|.le|.gt|.ge .s16 Qhh
setp .eq|.ne|.lt|.le|.gt|.ge .s32 Qrr
setp .eq|.ne|.lt|.le|.gt|.ge .s64 Qll
setp .eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs .u16 Qhh
setp .eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs .u32 Qrr
setp .eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs .u64 Qll
setp .eq|.ne .b32 Qrr
setp .eq|.ne .b64 Qll
setp .eq|.ne|.lt|.le|.gt|.ge .and|.or|.xor .s16 Qhho
setp .eq|.ne|.lt|.le|.gt|.ge .and|.or|.xor .s32 Qrro
setp .eq|.ne|.lt|.le|.gt|.ge .and|.or|.xor .u64 Qllo
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan |.ftz .f32 Qff
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .f64 Qgg
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .and|.or|.xor |.ftz .f32 Qffo
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .and|.or|.xor .f64 Qggo
set .eq|.ne|.lt|.le|.gt|.ge .u32|.s32|.f32 .s16 Rhh
set .eq|.ne|.lt|.le|.gt|.ge .u32|.s32|.f32 .s32 Rrr
set .eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs .u32|.s32|.f32 .u32 Rrr
set .eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs .u32|.s32|.f32 .u64 Rll
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan |.ftz .u32|.s32|.f32 .f32 Rff
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .u32|.s32|.f32 .f64 Rgg
set .eq|.ne|.lt|.le|.gt|.ge .and|.or|.xor .u32|.s32|.f32 .s64 Rllo
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .and|.or|.xor |.ftz .u32|.f32 .f32 Rffo
selp .b16|.u16|.s16 Hhhp
selp .b32|.u32|.s32 Rrrp
selp .f32 Rffp
selp .b64|.u64|.s64 Lllp
selp .f64 Lggp
slct .b16|.u16|.s16 .s32 Hhhr
slct .b32|.u32|.s32 .s32 Rrrr
slct .b64|.u64|.s64 .s32 Lllr
slct |.ftz .b32|.u32 .f32 Rrrf
slct |.ftz .b64|.s64 .f32 Lllf
slct |.ftz .f32.f32 Rfff
mov .b16|.u16|.s16 Hh
mov .b32|.u32|.s32 Rr
mov .f32 Rf
mov .b64|.u64|.s64 Ll
mov .f64 Lg
add|sub|mul |.rn |.ftz |.sat .f16 Hee
add|sub|mul |.rn |.ftz |.sat .f16x2 Rii
add|sub|mul |.rn .bf16 Hee
add|sub|mul |.rn .bf16x2 Rii
fma .rn |.ftz |.sat|.relu .f16 Heee
fma .rn |.ftz |.sat|.relu .f16x2 Riii
fma .rn |.relu .bf16 Heee
fma .rn |.relu .bf16x2 Riii
abs|neg |.ftz .f16 He
abs|neg |.ftz .f16x2 Ri
abs|neg .bf16 He
abs|neg .bf16x2 Ri
min|max |.ftz |.NaN |.xorsign.abs .f16 Hee
min|max |.ftz |.NaN |.xorsign.abs .f16x2 Rii
min|max |.NaN |.xorsign.abs .bf16 Hee
min|max |.NaN |.xorsign.abs .bf16x2 Rii
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan |.ftz .f16 Qee
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .bf16 Qee
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .and|.or|.xor |.ftz .f16 Qeeo
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan |.ftz .f16x2 Oii
setp .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .and|.or|.xor .bf16x2 Oiio
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .u32|.s32 .f16|.bf16 Ree
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .u16|.s16|.f16 .f16 Hee
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .bf16 .bf16 Hee
set .eq|.ne|.lt|.le|.gt|.ge .f16|.bf16 .s32 Hrr
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .u32|.s32|.f16x2 .f16x2 Rii
set .eq|.ne|.lt|.le|.gt|.ge|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan .and|.or|.xor .u32|.bf16x2 .bf16x2 Riio
cvt .rn|.rz |.relu .f16x2|.bf16x2 .f32 Rff
`

// form is one line of formText.
type form struct {
	parts    [][]string
	operands string
}

var forms = func() (list []form) {
	for _, line := range strings.Split(strings.TrimSpace(formText), "\n") {
		words := strings.Fields(line)
		f := form{operands: words[len(words)-1]}
		for _, w := range words[:len(words)-1] {
			f.parts = append(f.parts, strings.Split(w, "|"))
		}
		list = append(list, f)
	}
	return list
}()

// plain generates an instruction of the table.
func (w *writer) plain() string {
	f := forms[w.IntN(len(forms))]
	var b strings.Builder
	for _, p := range f.parts {
		b.WriteString(p[w.IntN(len(p))])
	}
	after := ""
	for i, c := range f.operands {
		b.WriteString([]string{" ", ", "}[min(i, 1)])
		o := w.operand(c)
		if c == 'D' {
			after = canonical(o)
		}
		b.WriteString(o)
	}
	return b.String() + after
}

// canonical generates code that makes a NaN in a register of 64 bits the canonical one.
func canonical(reg string) string {
	return fmt.Sprintf("; setp.nan.f64 %%q, %s, %s; selp.b64 %s, 0x7ff8000000000000, %s, %%q", reg, reg, reg, reg)
}

// operand generates an operand for a letter.
func (w *writer) operand(letter rune) string {
	switch letter {
	case 'H', 'R', 'L':
		return w.target(letter + 'a' - 'A')
	case 'D':
		return w.target('l')
	case 'P':
		return w.predicate()
	case 'Q':
		if p, q := w.IntN(4), w.IntN(4); p != q && w.IntN(3) == 0 {
			return fmt.Sprintf("%%p%d|%%p%d", p, q)
		}
		return w.predicate()
	case 'O':
		p := w.IntN(4)
		return fmt.Sprintf("%%p%d|%%p%d", p, (p+1+w.IntN(3))%4)
	case 'e', 'i':
		return w.register(map[rune]rune{'e': 'h', 'i': 'r'}[letter])
	case 'p':
		return w.predicate()
	case 'o':
		return oneOf(w, "", "!") + w.predicate()
	case 'h', 'r', 'l':
		return w.value(letter, 5)
	case 'f', 'g':
		if w.IntN(5) > 0 {
			return w.register(map[rune]rune{'f': 'r', 'g': 'l'}[letter])
		}
		if letter == 'f' {
			return fmt.Sprintf("0f%08x", uint32(w.bits()))
		}
		return fmt.Sprintf("0d%016x", w.bits())
	case 'n', 'b':
		if w.IntN(2) == 0 {
			return fmt.Sprint(oneOf(w, w.IntN(70), w.IntN(33), 31, 32, 63, 64, 255))
		}
		return w.register('r')
	}
	return fmt.Sprintf("0x%x", w.IntN(256))
}

// value returns a register or, once in so many times, an immediate.
func (w *writer) value(letter rune, once int) string {
	if w.IntN(once) > 0 {
		return w.register(letter)
	}
	v := w.bits()
	switch {
	case letter == 'h':
		return fmt.Sprintf("0x%x", uint16(v))
	case w.IntN(2) == 0:
		return fmt.Sprint(w.IntN(7) - 3)
	case letter == 'r':
		return fmt.Sprintf("0x%x", uint32(v))
	}
	return fmt.Sprintf("0x%x", v)
}
