package asm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listing is code with the text of each instruction for the GNU assembler.
type listing struct {
	Code
	lines  []string
	starts []int
}

// add appends an instruction and its text.
func (l *listing) add(text string, emit func()) {
	l.lines, l.starts = append(l.lines, text), append(l.starts, len(l.Bytes))
	emit()
}

var names64 = map[Reg]string{RAX: "rax", RCX: "rcx", RDX: "rdx", RBX: "rbx", RSI: "rsi", RDI: "rdi", R8: "r8", R9: "r9", R10: "r10", R11: "r11", R12: "r12", R13: "r13", R14: "r14", R15: "r15"}

func (l *listing) memory(m Mem, size string) string {
	if m.Label != nil {
		return size + " PTR [rip+pool]"
	}
	s := "[" + names64[m.Base]
	if m.HasVector {
		s += fmt.Sprintf("+%s*%d", size, m.Scale)
		size = ""
	} else if m.Index != NoReg {
		s += fmt.Sprintf("+%s*%d", names64[m.Index], m.Scale)
	}
	s += fmt.Sprintf("%+d]", m.Disp)
	if size == "" {
		return s
	}
	return size + " PTR " + s
}

// lower and result are the widths of the source and of the result, where they are not 512 bits.
var (
	lower  = map[string]string{"vpmovzxbd": "xmm", "vpmovsxbd": "xmm", "vpmovzxwd": "ymm", "vpmovsxwd": "ymm", "vpmovzxdq": "ymm", "vpmovsxdq": "ymm", "vcvtps2pd": "ymm", "vinserti64x4": "ymm", "vpbroadcastd": "xmm", "vpbroadcastq": "xmm"}
	result = map[string]string{"vpmovdb": "xmm", "vpmovdw": "ymm", "vpmovqd": "ymm", "vextracti64x4": "ymm", "vextracti32x4": "xmm", "vcvtpd2ps": "ymm", "vgatherqps": "ymm"}
	sizes  = map[string]string{"xmm": "XMMWORD", "ymm": "YMMWORD", "zmm": "ZMMWORD"}
	takes  = map[string]bool{"vcmpps": true, "vpcmpd": true, "vpcmpud": true, "vpcmpq": true, "vpcmpuq": true, "vfpclassps": true, "vinserti64x4": true, "vextracti64x4": true, "vextracti32x4": true}
)

func or(m map[string]string, name string) string {
	if s := m[name]; s != "" {
		return s
	}
	return "zmm"
}

var all = []Op{ADDPS, SUBPS, MULPS, DIVPS, SQRTPS, ADDPD, SUBPD, MULPD, DIVPD, MINPD, MAXPD, FMADD132PS, FMADD213PS, FMADD231PS, FMADD213PD, FMADD231PD, FNMADD213PD,
	PADDD, PSUBD, PMULLD, PADDQ, PSUBQ, PMULLQ, PMULUDQ, PMULDQ, PANDD, PORD, PXORD, PANDQ, PORQ, PXORQ, PMINUD, PMAXUD, PMINSD, PMAXSD,
	PSLLVD, PSRLVD, PSRAVD, PSLLVQ, PSRLVQ, PSRAVQ, PERMD, PERMI2D, PBLENDD, PBLENDQ, PSLLD, PSRLD, PSRAD, PSLLQ, PSRLQ, PSRAQ,
	MOVD, MOVQ, STORED, STOREQ, BROADCASTD, BROADCASTQ, MOVZXBD, MOVSXBD, MOVZXWD, MOVSXWD, MOVZXDQ, MOVSXDQ, STOREB, STOREW, MOVQD, HIGHHALF, QUARTER, INSERTHALF,
	CVTDQ2PS, CVTUDQ2PS, CVTTPS2DQ, CVTPS2PD, CVTPD2PS, CVTQQ2PD, CMPPS, CMPD, CMPUD, CMPQ, CMPUQ, CLASS, TESTMD, GATHERDPS, GATHERQPS, GATHERQPD, SCATTERDPS}

// Each form of each instruction has the bytes that the GNU assembler gives it.
func TestAgainstAssembler(t *testing.T) {
	if _, err := exec.LookPath("as"); err != nil {
		t.Fatal("as is missing: install binutils")
	}
	l := &listing{}
	registers := [][3]Vec{{0, 1, 2}, {31, 30, 29}, {7, 8, 15}, {16, 3, 24}, {9, 23, 6}}
	places := []Mem{At(RDI, 0), At(R12, 64), At(R13, -128), At(R8, 4096), At(RAX, 7), {Base: R9, Index: R15, Scale: 8, Disp: 12}, {Base: RCX, Index: RDX, Scale: 1, Disp: 1 << 20}}
	for _, o := range all {
		for i, r := range registers {
			mk, mask := Masking{}, ""
			switch {
			case i == 2:
				mk, mask = Under(3), "{k3}"
			case i == 3 && o.kind != comparing:
				mk, mask = Masking{5, true}, "{k5}{z}"
			}
			l.vector(o, r, mk, mask)
			if i == 3 && o.kind == storing {
				mk, mask = Under(5), "{k5}"
			}
			for _, m := range places {
				l.vectorMemory(o, r, m, mk, mask)
			}
			if o.kind == threeOperands && or(lower, o.Name) == "zmm" {
				l.vectorMemory(o, r, AtLabel(&Label{}).All(), mk, mask)
			}
		}
	}
	l.masks(places)
	l.general(places)
	l.check(t)
}

func (l *listing) vector(o Op, r [3]Vec, mk Masking, mask string) {
	d, a, b := fmt.Sprintf("%s%d%s", or(result, o.Name), r[0], mask), fmt.Sprintf("zmm%d", r[1]), fmt.Sprintf("%s%d", or(lower, o.Name), r[2])
	imm, text := l.immediate(o)
	switch o.kind {
	case threeOperands:
		l.add(fmt.Sprintf("%s %s, %s, %s%s", o.Name, d, a, b, text), func() { l.Op3(o, r[0], r[1], r[2], mk, imm...) })
	case twoOperands:
		l.add(fmt.Sprintf("%s %s, %s", o.Name, d, b), func() { l.Op2(o, r[0], r[2], mk) })
	case storing:
		l.add(fmt.Sprintf("{store} %s %s, %s%s", o.Name, d, b, text), func() { l.Op2(o, r[0], r[2], mk, imm...) })
	case shifting:
		l.add(fmt.Sprintf("%s %s, %s, 13", o.Name, d, a), func() { l.Shift(o, r[0], r[1], 13, mk) })
	case comparing:
		d = fmt.Sprintf("k%d%s", r[0]&7, mask)
		if o.Name == "vfpclassps" {
			l.add(fmt.Sprintf("%s %s, %s%s", o.Name, d, b, text), func() { l.Compare(o, Mask(r[0]&7), 0, r[2], mk, imm...) })
			return
		}
		l.add(fmt.Sprintf("%s %s, %s, %s%s", o.Name, d, a, b, text), func() { l.Compare(o, Mask(r[0]&7), r[1], r[2], mk, imm...) })
	}
}

func (l *listing) immediate(o Op) ([]byte, string) {
	if takes[o.Name] {
		return []byte{1}, ", 1"
	}
	return nil, ""
}

func (l *listing) vectorMemory(o Op, r [3]Vec, m Mem, mk Masking, mask string) {
	imm, text := l.immediate(o)
	d, a := fmt.Sprintf("zmm%d%s", r[0], mask), fmt.Sprintf("zmm%d", r[1])
	size := sizes[or(lower, o.Name)]
	broadcast := ""
	if m.Broadcast {
		size, broadcast = "DWORD", "{1to16}"
		if o.wide == 1 {
			size, broadcast = "QWORD", "{1to8}"
		}
	}
	switch o.Name {
	case "vpbroadcastd":
		size = "DWORD"
	case "vpbroadcastq":
		size = "QWORD"
	case "vcvtpd2ps":
		d = strings.Replace(d, "zmm", "ymm", 1)
	}
	at := l.memory(m, size) + broadcast
	switch o.kind {
	case threeOperands:
		l.add(fmt.Sprintf("{disp32} %s %s, %s, %s%s", o.Name, d, a, at, text), func() { l.Op3M(o, r[0], r[1], m, mk, imm...) })
	case twoOperands:
		l.add(fmt.Sprintf("{disp32} %s %s, %s", o.Name, d, at), func() { l.Op2M(o, r[0], m, mk) })
	case storing:
		from := fmt.Sprintf("zmm%d", r[2])
		l.add(fmt.Sprintf("{disp32} %s %s%s, %s%s", o.Name, l.memory(m, sizes[or(result, o.Name)]), mask, from, text), func() { l.Store(o, m, r[2], mk, imm...) })
	case comparing:
		d = fmt.Sprintf("k%d%s", r[0]&7, mask)
		if o.Name == "vfpclassps" {
			return
		}
		l.add(fmt.Sprintf("{disp32} %s %s, %s, %s%s", o.Name, d, a, at, text), func() { l.CompareM(o, Mask(r[0]&7), r[1], m, mk, imm...) })
	case indexed:
		if m.Index != NoReg {
			return
		}
		m.HasVector, m.Vector = true, r[1]
		at := l.memory(m, a)
		if o.Name == "vscatterdps" {
			l.add(fmt.Sprintf("{disp32} %s %s{k2}, zmm%d", o.Name, at, r[0]), func() { l.Store(o, m, r[0], Under(2)) })
			return
		}
		l.add(fmt.Sprintf("{disp32} %s %s%d{k2}, %s", o.Name, or(result, o.Name), r[0], at), func() { l.Op2M(o, r[0], m, Under(2)) })
	}
}

func (l *listing) masks(places []Mem) {
	for _, m := range places {
		l.add("{disp32} kmovw k3, "+l.memory(m, "WORD"), func() { l.LoadMask(3, m) })
		l.add("{disp32} kmovw "+l.memory(m, "WORD")+", k6", func() { l.StoreMask(m, 6) })
	}
	for _, o := range []MaskOp{KAND, KANDN, KOR, KXOR, KXNOR, KUNPACK} {
		l.add(o.Name+" k1, k7, k2", func() { l.MaskOp(o, 1, 7, 2) })
	}
	l.add("kmovw k1, k6", func() { l.MoveMask(1, 6) })
	l.add("knotw k2, k5", func() { l.NotMask(2, 5) })
	l.add("kshiftrw k7, k1, 8", func() { l.UpperMask(7, 1) })
	l.add("kortestw k1, k3", func() { l.TestMask(1, 3) })
}

func (l *listing) general(places []Mem) {
	ops := map[RegOp]string{ADD: "add", OR: "or", AND: "and", SUB: "sub", XOR: "xor", CMP: "cmp"}
	for r, name := range names64 {
		for _, m := range places {
			at := l.memory(m, "QWORD")
			l.add(fmt.Sprintf("{disp32} mov %s, %s", name, at), func() { l.Load(r, m) })
			l.add(fmt.Sprintf("{disp32} mov %s, %s", at, name), func() { l.StoreReg(m, r) })
			l.add(fmt.Sprintf("{disp32} lea %s, %s", name, l.memory(m, "")), func() { l.Address(r, m) })
			l.add(fmt.Sprintf("{disp32} mov %s, %s", name32(name), l.memory(m, "DWORD")), func() { l.Load32(r, m, false) })
			l.add(fmt.Sprintf("{disp32} movsxd %s, %s", name, l.memory(m, "DWORD")), func() { l.Load32(r, m, true) })
			l.add(fmt.Sprintf("{disp32} add %s, %s", at, name), func() { l.AddTo(m, r, true) })
			l.add(fmt.Sprintf("{disp32} add %s, %s", l.memory(m, "DWORD"), name32(name)), func() { l.AddTo(m, r, false) })
		}
		if r != RAX { // which has shorter forms
			for o, op := range ops {
				l.add(fmt.Sprintf("%s %s, 0x12345", op, name), func() { l.RegInt(o, r, 0x12345) })
				l.add(fmt.Sprintf("%s %s, rbx", op, name), func() { l.Reg(o, r, RBX) })
				l.add(fmt.Sprintf("{disp32} %s %s, %s", op, name, l.memory(places[1], "QWORD")), func() { l.RegMem(o, r, places[1]) })
			}
		}
		for _, v := range []Vec{3, 12, 30} {
			l.add(fmt.Sprintf("{evex} vmovq %s, xmm%d", name, v), func() { l.Quad(r, v, false) })
			l.add(fmt.Sprintf("{evex} vpextrq %s, xmm%d, 1", name, v), func() { l.Quad(r, v, true) })
		}
		l.add(fmt.Sprintf("{load} mov esi, %s", name32(name)), func() { l.Copy32(RSI, r, false) })
		l.add(fmt.Sprintf("movsxd r9, %s", name32(name)), func() { l.Copy32(R9, r, true) })
		l.add(fmt.Sprintf("shr %s, 32", name), func() { l.Upper32(r, false) })
		l.add(fmt.Sprintf("sar %s, 32", name), func() { l.Upper32(r, true) })
		l.add(fmt.Sprintf("vpbroadcastd zmm17, %s", name32(name)), func() { l.BroadcastReg(17, r, false) })
		l.add(fmt.Sprintf("vpbroadcastq zmm5, %s", name), func() { l.BroadcastReg(5, r, true) })
	}
	for _, m := range places {
		l.add("{disp32} prefetcht0 "+l.memory(m, "BYTE"), func() { l.Prefetch(m) })
		l.add("{disp32} mov "+l.memory(m, "DWORD")+", 77", func() { l.StoreInt32(m, 77) })
		l.add("{disp32} cmp "+l.memory(m, "QWORD")+", 0x1234", func() { l.MemInt(CMP, m, 0x1234) })
		l.add("{disp32} add "+l.memory(m, "QWORD")+", 0x1234", func() { l.MemInt(ADD, m, 0x1234) })
	}
	l.add("ret", l.Return)
}

func name32(name string) string {
	if name[1] >= '0' && name[1] <= '9' {
		return name + "d"
	}
	return "e" + name[1:]
}

func (l *listing) check(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	source, object, flat := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o"), filepath.Join(dir, "a.bin")
	// The assembler has no way to write a displacement of 0 from the end of an instruction but a label there.
	text := ".intel_syntax noprefix\n"
	for i, s := range l.lines {
		text += strings.ReplaceAll(s, "pool", fmt.Sprintf("l%d", i)) + "\n" + fmt.Sprintf("l%d:\n", i)
	}
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{"as", "--64", "-o", object, source}, {"objcopy", "-O", "binary", "-j", ".text", object, flat}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%.2000s", cmd[0], err, out)
		}
	}
	want, err := os.ReadFile(flat)
	if err != nil {
		t.Fatal(err)
	}
	wrong, shift := 0, 0
	for i, s := range l.lines {
		end := len(l.Bytes)
		if i+1 < len(l.starts) {
			end = l.starts[i+1]
		}
		got := l.Bytes[l.starts[i]:end]
		if shift += len(got); shift > len(want) || !bytes.Equal(got, want[shift-len(got):shift]) {
			t.Errorf("%s: got % x, want % x", s, got, want[min(shift-len(got), len(want)):min(shift, len(want))])
			if wrong++; wrong > 0 {
				return
			}
		}
	}
	t.Logf("%d instructions", len(l.lines))
}
