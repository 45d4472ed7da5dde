// Genrows writes the row kernels: tight loops over the lanes of registers, one
// function for each operation. Each is given as a Go expression. It becomes a
// plain loop, which runs everywhere, and is compiled to loops of AVX2 and
// AVX-512 instructions, as far as these can express it.
package main

import (
	"fmt"
	"go/format"
	"log"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// operation is an entry of the table below. In expr the operands are x, y and
// z; its result is of type out.
type operation struct {
	name  string
	types string // of x, y, z; a bit is one of a mask
	out   string
	expr  string
	// vector, if not empty, has the same value as expr and suits vectors better.
	vector string
	// guard, if not empty, is the condition on the operands for the vector kernel.
	guard string
}

var operations = table()

func table() (t []operation) {
	add := func(name, types, out, expr string) {
		t = append(t, operation{name: name, types: types, out: out, expr: expr})
	}
	for _, w := range []string{"32", "64"} {
		u, s, f := "uint"+w, "int"+w, "float"+w
		for _, op := range []struct{ name, expr string }{{"add", "x + y"}, {"sub", "x - y"}, {"mul", "x * y"}, {"and", "x & y"}, {"or", "x | y"}, {"xor", "x ^ y"}} {
			add(op.name+"U"+w, u+" "+u, u, op.expr)
		}
		add("madU"+w, u+" "+u+" "+u, u, "x*y + z")
		add("movU"+w, u, u, "x")
		add("notU"+w, u, u, "^x")
		add("negU"+w, u, u, "-x")
		add("absS"+w, s, s, "max(x, -x)")
		add("shlU"+w, u+" uint32", u, "x << y")
		add("shrU"+w, u+" uint32", u, "x >> y")
		add("shrS"+w, s+" uint32", s, "x >> y")
		for _, k := range []string{"U" + w, "S" + w} {
			ty := u
			if k[0] == 'S' {
				ty = s
			}
			add("min"+k, ty+" "+ty, ty, "min(x, y)")
			add("max"+k, ty+" "+ty, ty, "max(x, y)")
			add("div"+k, ty+" "+ty, ty, "quotient"+k+"(x, y)")
			add("rem"+k, ty+" "+ty, ty, "remainder"+k+"(x, y)")
			for _, c := range []struct{ name, op string }{{"lt", "<"}, {"le", "<="}} {
				add("cmp"+c.name+k, ty+" "+ty, "bit", "x "+c.op+" y")
			}
		}
		add("cmpeqU"+w, u+" "+u, "bit", "x == y")
		add("cmpneU"+w, u+" "+u, "bit", "x != y")
		F := "F" + w
		for _, c := range []struct{ name, expr string }{
			{"eq", "x == y"}, {"ne", "x < y || x > y"}, {"lt", "x < y"}, {"le", "x <= y"},
			{"equ", "!(x < y || x > y)"}, {"neu", "x != y"}, {"ltu", "!(x >= y)"}, {"leu", "!(x > y)"},
			{"num", "x == x && y == y"}, {"nan", "x != x || y != y"},
		} {
			add("cmp"+c.name+F, f+" "+f, "bit", c.expr)
		}
	}
	t = append(t, floatRows()...)
	for _, op := range []struct{ name, types, expr string }{
		{"add", "xy", "x + y"}, {"sub", "xy", "x - y"}, {"mul", "xy", "x * y"}, {"div", "xy", "x / y"}, {"fma", "xyz", "math.FMA(x, y, z)"}, {"rcp", "x", "1 / x"},
		{"sqrt", "x", "math.Sqrt(x)"}, {"min", "xy", "lesser64(x, y)"}, {"max", "xy", "greater64(x, y)"},
		{"floor", "x", "math.Floor(x)"}, {"ceil", "x", "math.Ceil(x)"}, {"trunc", "x", "math.Trunc(x)"}, {"near", "x", "math.RoundToEven(x)"},
	} {
		add(op.name+"F64", strings.TrimSpace(strings.Repeat("float64 ", len(op.types))), "float64", op.expr)
	}
	add("flushF32", "float32", "float32", "Flush(x)")
	add("satF32", "float32", "float32", "saturate32(x)")
	add("absF64", "uint64", "uint64", "x &^ (1 << 63)")
	add("negF64", "uint64", "uint64", "x ^ 1<<63")
	add("wideU", "uint32 uint32", "uint64", "uint64(x) * uint64(y)")
	add("wideS", "int32 int32", "int64", "int64(x) * int64(y)")
	add("madWideU", "uint32 uint32 uint64", "uint64", "uint64(x)*uint64(y) + z")
	add("madWideS", "int32 int32 int64", "int64", "int64(x)*int64(y) + z")
	add("cvtU64U32", "uint32", "uint64", "uint64(x)")
	add("cvtS64S32", "int32", "int64", "int64(x)")
	add("cvtU32U64", "uint64", "uint32", "uint32(x)")
	add("cvtU16", "uint32", "uint32", "x & 0xffff")
	add("cvtU8", "uint32", "uint32", "x & 0xff")
	add("cvtS16", "uint32", "int32", "int32(x<<16) >> 16")
	add("cvtS8", "uint32", "int32", "int32(x<<24) >> 24")
	// Of textures: see sampler.
	add("texelBetween", "float32 uint32", "uint32", "between(x, y)")
	add("texelNearest", "float32 uint32", "uint32", "nearest(x, y)")
	add("texelFirst", "uint32 uint32", "uint32", "min(x>>8, y)")
	add("texelTowards", "uint32 uint32", "uint32", "x - y<<8")
	add("texelField", "uint32 uint32 uint32", "uint32", "x >> y & z")
	add("texelBlend", "uint32 uint32 uint32", "uint32", "x<<8 + (y-x)*z")
	add("texelRound", "uint32", "uint32", "(x + 1<<15) >> 16")
	add("texelRatio", "uint32 float64", "float32", "CanonF32(float32(float64(x) / y))")
	t = append(t, integerRows()...)
	t = append(t, conversionRows()...)
	add("selectU32", "uint32 uint32 bit", "uint32", "Pick(z, y, x)")
	add("selectU64", "uint64 uint64 bit", "uint64", "Pick(z, y, x)")
	return t
}

// integerRows returns the operations of integers that Go has no operator for.
func integerRows() (t []operation) {
	add := func(name, types, out, expr string) {
		t = append(t, operation{name: name, types: types, out: out, expr: expr})
	}
	for _, w := range []string{"32", "64"} {
		u, s := "uint"+w, "int"+w
		add("mulHiU"+w, u+" "+u, u, "highU"+w+"(x, y)")
		add("bfeU"+w, u+" uint32 uint32", u, "extractU"+w+"(x, y, z)")
		add("bfeS"+w, s+" uint32 uint32", s, "extractS"+w+"(x, y, z)")
		add("bfiU"+w, u+" "+u+" uint32", u, "insertU"+w+"(x, y, z)")
		add("popcU"+w, u, "uint32", "uint32(bits.OnesCount"+w+"(x))")
		add("clzU"+w, u, "uint32", "uint32(bits.LeadingZeros"+w+"(x))")
		add("brevU"+w, u, u, "reverse"+w+"(x)")
		// The carry is that of x + y + the lowest bit of z.
		carry := "z&1"
		if w == "64" {
			carry = "uint64(z&1)"
		}
		add("addcU"+w, u+" "+u+" uint32", u, "x + y + "+carry)
		add("addcCarryU"+w, u+" "+u+" uint32", "uint32", "carryU"+w+"(x, y, x+y+"+carry+")")
	}
	add("mulHiS32", "int32 int32", "int32", "highS32(x, y)")
	add("mulHiS64", "uint64 uint64", "uint64", "highS64(x, y)")
	add("addSatS32", "int32 int32", "int32", "SaturateS32(int64(x) + int64(y))")
	add("subSatS32", "int32 int32", "int32", "SaturateS32(int64(x) - int64(y))")
	for _, k := range []struct{ name, kind string }{{"U", "uint32"}, {"S", "int32"}} {
		for _, part := range []struct{ name, shift string }{{"", ""}, {"Hi", ">>16"}} {
			add("mul24"+part.name+k.name+"32", k.kind+" "+k.kind, k.kind, k.kind+"(product24"+k.name+"(x, y)"+part.shift+")")
		}
	}
	add("shfLeftU32", "uint32 uint32 uint32", "uint32", "funnelLeft(x, y, z)")
	add("shfRightU32", "uint32 uint32 uint32", "uint32", "funnelRight(x, y, z)")
	add("prmtU32", "uint32 uint32 uint32", "uint32", "permuteU32(x, y, z)")
	for _, k := range []string{"U", "S"} {
		sum := "z"
		for i := range 4 {
			sum += " + " + byteOf("x", i, k) + "*" + byteOf("y", i, k)
		}
		add("dp4a"+k+k, "uint32 uint32 uint32", "uint32", sum)
	}
	add("packU64", "uint32 uint32", "uint64", "uint64(x) | uint64(y)<<32")
	add("packU32", "uint32 uint32", "uint32", "x | y<<16")
	add("packU16", "uint32 uint32", "uint32", "x&0xff | y&0xff<<8")
	add("upperU64", "uint64", "uint32", "uint32(x >> 32)")
	add("upperU32", "uint32", "uint32", "x >> 16")
	return t
}

// conversionRows returns the conversions from and to floating-point numbers. Those
// to integers drop the fraction and saturate.
func conversionRows() (t []operation) {
	add := func(name, types, out, expr string) {
		t = append(t, operation{name: name, types: types, out: out, expr: expr})
	}
	for _, k := range []struct{ name, kind string }{{"S32", "int32"}, {"U32", "uint32"}, {"S64", "int64"}, {"U64", "uint64"}} {
		for _, f := range []struct{ name, kind string }{{"F32", "float32"}, {"F64", "float64"}} {
			add("cvt"+f.name+k.name, k.kind, f.kind, f.kind+"(x)")
			add("cvt"+k.name+f.name, f.kind, k.kind, "trunc"+k.name+"(float64(x))")
		}
	}
	// NaN gives 0 where both sides have 32 bits.
	for i := range t {
		if name := t[i].name; name == "cvtS32F32" || name == "cvtU32F32" {
			t[i].expr = "Pick(x != x, " + t[i].expr + ", 0)"
		}
	}
	add("cvtF64F32", "float32", "float64", "float64(x)")
	add("cvtF32F64", "float64", "float32", "float32(x)")
	return t
}

// byteOf returns the byte with number i of a word, with sign or without.
func byteOf(word string, i int, kind string) string {
	if kind == "S" {
		return fmt.Sprintf("uint32(int32(%s<<%d)>>24)", word, 24-8*i)
	}
	return fmt.Sprintf("(%s<<%d>>24)", word, 24-8*i)
}

// floatRows returns the f32 operations; those that flush subnormal operands and results have names that end in Ftz and
// the type.
func floatRows() (t []operation) {
	for _, op := range []struct{ name, types, expr string }{
		{"add", "xy", "CanonF32(x + y)"}, {"sub", "xy", "CanonF32(x - y)"}, {"mul", "xy", "CanonF32(x * y)"}, {"fma", "xyz", "FMA32(x, y, z)"},
		{"div", "xy", "CanonF32(x / y)"}, {"divApprox", "xy", "CanonF32(quotientApprox(x, y))"},
		{"rcp", "x", "CanonF32(1 / x)"}, {"sqrt", "x", "CanonF32(float32(math.Sqrt(float64(x))))"}, {"rsqrt", "x", "rsqrt(x)"},
		{"min", "xy", "Lesser32(x, y)"}, {"max", "xy", "Greater32(x, y)"},
		{"abs", "x", "CanonF32(math.Float32frombits(math.Float32bits(x) &^ (1 << 31)))"}, {"neg", "x", "CanonF32(-x)"}, {"copy", "x", "CanonF32(x)"},
		{"ex2", "x", "ex2(x)"}, {"lg2", "x", "lg2(x)"}, {"sin", "x", "sin32(x)"}, {"cos", "x", "cos32(x)"}, {"tanh", "x", "tanh32(x)"},
		{"floor", "x", "CanonF32(float32(math.Floor(float64(x))))"}, {"ceil", "x", "CanonF32(float32(math.Ceil(float64(x))))"},
		{"trunc", "x", "CanonF32(float32(math.Trunc(float64(x))))"}, {"near", "x", "CanonF32(float32(math.RoundToEven(float64(x))))"},
	} {
		types := strings.TrimSpace(strings.Repeat("float32 ", len(op.types)))
		plain := operation{name: op.name + "F32", types: types, out: "float32", expr: op.expr}
		flushed := operation{name: op.name + "FtzF32", types: types, out: "float32", expr: "Flush(" + flushOperands(op.expr) + ")"}
		if op.name == "sin" || op.name == "cos" {
			plain.vector, plain.guard = op.name+"Near(x)", "near(x)"
		}
		if t = append(t, plain); flushing[op.name] {
			t = append(t, flushed)
		}
	}
	return t
}

// flushing are the operations with another one that flushes. For others, flushF32 does that.
var flushing = map[string]bool{"add": true, "sub": true, "mul": true, "fma": true, "rsqrt": true, "ex2": true, "lg2": true}

// flushOperands flushes each operand where it is used.
func flushOperands(expr string) string {
	return operandName.ReplaceAllString(expr, "Flush($0)")
}

var operandName = regexp.MustCompile(`\b[xyz]\b`)

func main() {
	var plain, amd64, other, asm strings.Builder
	const mark = "// Code generated by genrows. DO NOT EDIT.\n\n"
	plain.WriteString(mark + "package arith\n\nimport (\n\"math\"\n\"math/bits\"\n\"unsafe\"\n)\n\n")
	amd64.WriteString("//go:build amd64\n\n" + mark + "package arith\n\nimport \"unsafe\"\n\n")
	other.WriteString("//go:build !amd64\n\n" + mark + "package arith\n\n// vectorRows has no kernels for this machine.\nvar vectorRows map[string][2]RowFunc\n")
	asm.WriteString(mark + "#include \"textflag.h\"\n#include \"rows_amd64.h\"\n\n")

	plain.WriteString("// plainRows has the plain loop of each operation.\nvar plainRows = map[string]RowFunc{\n")
	for _, op := range operations {
		fmt.Fprintf(&plain, "%q: %s,\n", op.name, op.name)
	}
	plain.WriteString("}\n")
	for _, op := range operations {
		op.write(&plain)
	}
	tests := mark + "package arith\n\n// rowTypes are the types of each operation's result and operands.\nvar rowTypes = map[string]string{\n"
	for _, op := range operations {
		tests += fmt.Sprintf("%q: %q,\n", op.name, op.out+" "+op.types)
	}
	writeGo("zz_rows_test.go", tests+"}\n")
	vectorKernels(&amd64, &asm)
	writeGo("zz_rows_unsafe.go", plain.String())
	writeGo("zz_rows_amd64_unsafe.go", amd64.String())
	writeGo("zz_rows_other_unsafe.go", other.String())
	write("zz_rows_amd64.s", []byte(asm.String()))
}

// vectorKernels writes all vector kernels, with the declarations that Go needs.
func vectorKernels(decl, asm *strings.Builder) {
	s, p := readSource(), &pool{values: map[string][8]uint64{}}
	var table, funcs, kernels strings.Builder
	entries := map[string]*kernel{}
	for i := range operations {
		op := &operations[i]
		row := []string{"nil", "nil"}
		for level, set := range isas {
			if rare[op.name] || level > 0 && row[0] != "nil" && !common[op.name] {
				continue
			}
			if !s.write(&kernels, op, set, p, entries) {
				continue
			}
			name, result := op.name+set.name, ""
			row[level] = name
			if op.guard != "" {
				name, result = name+"Part", "int"
				row[level] = fmt.Sprintf("partly(%s, %s)", name, op.name)
			}
			fmt.Fprintf(&funcs, "func %s(d, a, b, c unsafe.Pointer, n int, scalars int) %s\n", name, result)
		}
		fmt.Fprintf(&table, "%q: {%s},\n", op.name, strings.Join(row, ", "))
	}
	fmt.Fprintf(decl, "// vectorRows has the kernels of the operations, for AVX2 and AVX-512.\nvar vectorRows = map[string][2]RowFunc{\n%s}\n\n%s", table.String(), funcs.String())
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		entries[name].writeEntry(asm)
	}
	asm.WriteString(kernels.String())
	p.write(asm)
}

func writeGo(name, text string) {
	src, err := format.Source([]byte(text))
	if err != nil {
		log.Fatal(name, ": ", err)
	}
	write(name, src)
}

func write(name string, text []byte) {
	if err := os.WriteFile(name, text, 0o644); err != nil {
		log.Fatal(err)
	}
}

// write writes the plain loop.
func (op *operation) write(b *strings.Builder) {
	types := strings.Fields(op.types)
	params := []string{"d", "_", "_", "_"}
	copy(params[1:], []string{"a", "b", "c"}[:len(types)])
	fmt.Fprintf(b, "\nfunc %s(%s unsafe.Pointer, n, scalars int) {\n", op.name, strings.Join(params, ", "))
	var steps, sizes, names, values []string
	for i, t := range types {
		v, p := "xyz"[i:i+1], "abc"[i:i+1]
		names = append(names, v)
		if t == "bit" {
			values = append(values, "bitAt("+p+", i)")
			continue
		}
		steps = append(steps, p+"s")
		sizes = append(sizes, fmt.Sprintf("stepOf(scalars, %d, %d)", i, width(t)/8))
		values = append(values, fmt.Sprintf("*(*%s)(unsafe.Add(%s, i*%ss))", t, p, p))
	}
	fmt.Fprintf(b, "%s := %s\n", strings.Join(steps, ", "), strings.Join(sizes, ", "))
	loads := fmt.Sprintf("%s := %s\n", strings.Join(names, ", "), strings.Join(values, ", "))
	if op.out == "bit" {
		fmt.Fprintf(b, "ds := unsafe.Slice((*uint64)(d), (n+63)/64)\nfor w := range ds {\nvar m uint64\nfor i, e := w*64, min(w*64+64, n); i < e; i++ {\n%sif %s {\nm |= 1 << (i & 63)\n}\n}\nds[w] = m\n}\n}\n", loads, op.expr)
		return
	}
	store := "ds[i] = " + op.expr
	if op.name == "fmaF32" { // FMA32 is too large to be inlined: its fast path is here
		store = "s := float64(x)*float64(y) + float64(z)\nif doubtful(s) {\nds[i] = fma32Slow(x, y, z)\ncontinue\n}\nds[i] = float32(s)"
	}
	fmt.Fprintf(b, "ds := unsafe.Slice((*%s)(d), n)\nfor i := range ds {\n%s%s\n}\n}\n", op.out, loads, store)
}
