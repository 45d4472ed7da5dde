// Genrows writes the row kernels: tight loops over the lanes of registers,
// one function for each operation, type and choice of scalar operands.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"strings"
)

// operation is an entry of the table below. In expr the operands are x, y and
// z; its result is of type out.
type operation struct {
	name  string
	types string // of x, y, z
	out   string
	expr  string
	// scalars lists which operands may be scalars, as sets of letters; the
	// plain rows come by themselves.
	scalars string
}

var operations = table()

func table() (t []operation) {
	add := func(name, types, out, expr, scalars string) {
		t = append(t, operation{name, types, out, expr, scalars})
	}
	for _, w := range []string{"32", "64"} {
		u, s, f := "uint"+w, "int"+w, "float"+w
		for _, op := range []struct{ name, expr string }{{"add", "x + y"}, {"sub", "x - y"}, {"mul", "x * y"}, {"and", "x & y"}, {"or", "x | y"}, {"xor", "x ^ y"}} {
			add(op.name+"U"+w, u+" "+u, u, op.expr, "x y")
		}
		add("madU"+w, u+" "+u+" "+u, u, "x*y + z", "y z yz x xz")
		add("movU"+w, u, u, "x", "x")
		add("notU"+w, u, u, "^x", "")
		add("negU"+w, u, u, "-x", "")
		add("absS"+w, s, s, "max(x, -x)", "")
		add("shlU"+w, u+" uint32", u, "x << y", "y")
		add("shrU"+w, u+" uint32", u, "x >> y", "y")
		add("shrS"+w, s+" uint32", s, "x >> y", "y")
		for _, k := range []string{"U" + w, "S" + w} {
			ty := u
			if k[0] == 'S' {
				ty = s
			}
			add("min"+k, ty+" "+ty, ty, "min(x, y)", "y")
			add("max"+k, ty+" "+ty, ty, "max(x, y)", "y")
			add("div"+k, ty+" "+ty, ty, "quotient"+k[:1]+"(x, y)", "y")
			add("rem"+k, ty+" "+ty, ty, "remainder"+k[:1]+"(x, y)", "y")
			for _, c := range []struct{ name, op string }{{"lt", "<"}, {"le", "<="}, {"gt", ">"}, {"ge", ">="}} {
				add("cmp"+c.name+k, ty+" "+ty, "bit", "x "+c.op+" y", "y")
			}
		}
		add("cmpeqU"+w, u+" "+u, "bit", "x == y", "y")
		add("cmpneU"+w, u+" "+u, "bit", "x != y", "y")
		F := "F" + w
		for _, op := range []struct{ name, expr string }{{"add", "x + y"}, {"sub", "x - y"}, {"mul", "x * y"}, {"div", "x / y"}} {
			add(op.name+F, f+" "+f, f, "canon"+F+"("+op.expr+")", "x y")
		}
		add("fma"+F, f+" "+f+" "+f, f, "fma"+w+"(x, y, z)", "y z yz x xz")
		add("sqrt"+F, f, f, "canon"+F+"("+f+"(math.Sqrt(float64(x))))", "")
		add("rcp"+F, f, f, "canon"+F+"(1 / x)", "")
		add("min"+F, f+" "+f, f, "lesser"+w+"(x, y)", "y")
		add("max"+F, f+" "+f, f, "greater"+w+"(x, y)", "y")
		for _, c := range []struct{ name, expr string }{
			{"eq", "x == y"}, {"ne", "x < y || x > y"}, {"lt", "x < y"}, {"le", "x <= y"}, {"gt", "x > y"}, {"ge", "x >= y"},
			{"equ", "!(x < y || x > y)"}, {"neu", "x != y"}, {"ltu", "!(x >= y)"}, {"leu", "!(x > y)"}, {"gtu", "!(x <= y)"}, {"geu", "!(x < y)"},
			{"num", "x == x && y == y"}, {"nan", "x != x || y != y"},
		} {
			add("cmp"+c.name+F, f+" "+f, "bit", c.expr, "y")
		}
	}
	for _, op := range []struct{ name, expr string }{{"add", "x + y"}, {"sub", "x - y"}, {"mul", "x * y"}} {
		expr := strings.NewReplacer("x", "flush(x)", "y", "flush(y)").Replace(op.expr)
		add(op.name+"FtzF32", "float32 float32", "float32", "canonF32(flush("+expr+"))", "x y")
	}
	add("fmaFtzF32", "float32 float32 float32", "float32", "flush(fma32(flush(x), flush(y), flush(z)))", "y z yz x xz")
	add("flushF32", "float32", "float32", "flush(x)", "")
	add("absF64", "uint64", "uint64", "x &^ (1 << 63)", "")
	add("negF64", "uint64", "uint64", "x ^ 1<<63", "")
	add("cvtF64F32", "float32", "float64", "float64(x)", "")
	add("cvtF32F64", "float64", "float32", "canonF32(float32(x))", "")
	add("wideU", "uint32 uint32", "uint64", "uint64(x) * uint64(y)", "y")
	add("wideS", "int32 int32", "int64", "int64(x) * int64(y)", "y")
	add("madWideU", "uint32 uint32 uint64", "uint64", "uint64(x)*uint64(y) + z", "y z yz")
	add("madWideS", "int32 int32 int64", "int64", "int64(x)*int64(y) + z", "y z yz")
	add("absF32", "uint32", "uint32", "canonBits32(x &^ (1 << 31))", "")
	add("negF32", "uint32", "uint32", "canonBits32(x ^ 1<<31)", "")
	add("cvtU64U32", "uint32", "uint64", "uint64(x)", "")
	add("cvtS64S32", "int32", "int64", "int64(x)", "")
	add("cvtU32U64", "uint64", "uint32", "uint32(x)", "")
	add("cvtU16", "uint32", "uint32", "x & 0xffff", "")
	add("cvtU8", "uint32", "uint32", "x & 0xff", "")
	add("cvtS16", "uint32", "int32", "int32(int16(x))", "")
	add("cvtS8", "uint32", "int32", "int32(int8(x))", "")
	add("cvtF32S32", "int32", "float32", "float32(x)", "")
	add("cvtF32U32", "uint32", "float32", "float32(x)", "")
	add("floorF32", "float32", "float32", "canonF32(float32(math.Floor(float64(x))))", "")
	add("truncS32F32", "float32", "int32", "truncS32(x)", "")
	add("truncU16F32", "float32", "uint32", "truncU16(x)", "")
	add("ex2F32", "float32", "float32", "ex2(x)", "")
	add("ex2FtzF32", "float32", "float32", "flush(ex2(flush(x)))", "")
	add("lg2F32", "float32", "float32", "lg2(x)", "")
	add("lg2FtzF32", "float32", "float32", "lg2(flush(x))", "")
	add("sinF32", "float32", "float32", "sin32(x)", "")
	add("cosF32", "float32", "float32", "cos32(x)", "")
	return t
}

func main() {
	var b bytes.Buffer
	b.WriteString("// Code generated by genrows. DO NOT EDIT.\n\npackage lane\n\nimport (\n\"math\"\n\"unsafe\"\n)\n\n")
	var names bytes.Buffer
	for _, op := range operations {
		op.write(&b, "")
		fmt.Fprintf(&names, "%q: {wide: %d, rows: [8]rowFunc{0: %s,", op.name, op.wide(), op.name)
		for _, s := range strings.Fields(op.scalars) {
			op.write(&b, s)
			bits := 0
			for i, v := range "xyz" {
				if strings.ContainsRune(s, v) {
					bits |= 1 << i
				}
			}
			fmt.Fprintf(&names, "%d: %s,", bits, op.name+"_"+s)
		}
		names.WriteString("}},\n")
	}
	fmt.Fprintf(&b, "// rowTable has the kernels of each operation by the set of their scalar operands: 1 for the first, 2, 4.\nvar rowTable = map[string]rowOp{\n%s}\n", names.Bytes())
	writeAssembly()
	src, err := format.Source(b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("zz_rows_unsafe.go", src, 0o644); err != nil {
		log.Fatal(err)
	}
}

// wide is the set of operands with 64 bits.
func (op *operation) wide() (set int) {
	for i, t := range strings.Fields(op.types) {
		if strings.HasSuffix(t, "64") {
			set |= 1 << i
		}
	}
	return set
}

func (op *operation) write(b *bytes.Buffer, scalars string) {
	types := strings.Fields(op.types)
	name := op.name
	if scalars != "" {
		name += "_" + scalars
	}
	params := []string{"d"}
	for i := range types {
		params = append(params, []string{"a", "b", "c"}[i])
	}
	for len(params) < 4 {
		params = append(params, "_")
	}
	fmt.Fprintf(b, "func %s(%s unsafe.Pointer, n int) {\n", name, strings.Join(params, ", "))
	if vectorOps[op.name] != "" {
		op.vectorCall(b, name, scalars)
	}
	var loads []string
	for i, t := range types {
		v, p := "xyz"[i:i+1], "abc"[i:i+1]
		if strings.Contains(scalars, v) {
			fmt.Fprintf(b, "%s := *(*%s)(%s)\n", v, t, p)
			continue
		}
		fmt.Fprintf(b, "%ss := unsafe.Slice((*%s)(%s), n)\n", p, t, p)
		loads = append(loads, fmt.Sprintf("%s := %ss[i]", v, p))
	}
	if op.out == "bit" {
		fmt.Fprintf(b, "ds := unsafe.Slice((*uint64)(d), (n+63)/64)\nfor w := range ds {\nvar m uint64\nfor i, e := w*64, min(w*64+64, n); i < e; i++ {\n%s\nif %s {\nm |= 1 << (i & 63)\n}\n}\nds[w] = m\n}\n}\n\n", strings.Join(loads, "\n"), op.expr)
		return
	}
	store := "ds[i] = " + op.expr
	if op.name == "fmaF32" { // fma32 is too large to be inlined: its fast path is here
		store = "s := float64(x)*float64(y) + float64(z)\nif doubtful(s) {\nds[i] = fma32Slow(x, y, z)\ncontinue\n}\nds[i] = float32(s)"
	}
	fmt.Fprintf(b, "ds := unsafe.Slice((*%s)(d), n)\nfor i := range ds {\n%s\n%s\n}\n}\n\n", op.out, strings.Join(loads, "\n"), store)
}
