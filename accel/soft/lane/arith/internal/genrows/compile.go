package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"math"
	"strings"
)

// source is the input of the compiler: the table's expressions as functions, and the files with the functions that they
// call.
type source struct {
	info  *types.Info
	funcs map[string]*ast.FuncDecl
}

// sourceFiles hold functions that kernels may call. A function is compiled as if all its branches were taken, and then
// the result is selected; so there are neither loops nor side effects.
var sourceFiles = []string{"scalar.go", "approx.go", "integer.go", "place.go"}

func readSource() *source {
	set := token.NewFileSet()
	var files []*ast.File
	parse := func(name string, src any) {
		f, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, f)
	}
	for _, n := range sourceFiles {
		parse(n, nil)
	}
	var b strings.Builder
	b.WriteString("package arith\n\nimport (\n\"math\"\n\"math/bits\"\n)\nvar _ = math.Pi\nvar _ = bits.Len\n")
	for _, op := range operations {
		fmt.Fprintf(&b, "func %s {\nreturn %s\n}\n", op.signature("row_"+op.name, op.out), op.vectorExpr())
		if op.guard != "" {
			fmt.Fprintf(&b, "func %s {\nreturn %s\n}\n", op.signature("guard_"+op.name, "bit"), op.guard)
		}
	}
	parse("table.go", b.String())
	s := &source{
		info:  &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}},
		funcs: map[string]*ast.FuncDecl{},
	}
	conf := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	if _, err := conf.Check("lane", set, files, s.info); err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				s.funcs[d.Name.Name] = d
			}
		}
	}
	return s
}

// signature returns the operation as a function.
func (op *operation) signature(name, out string) string {
	var params []string
	for i, t := range strings.Fields(op.types) {
		params = append(params, "xyz"[i:i+1]+" "+goType(t))
	}
	return fmt.Sprintf("%s(%s) %s", name, strings.Join(params, ", "), goType(out))
}

func goType(t string) string {
	if t == "bit" {
		return "bool"
	}
	return t
}

func (op *operation) vectorExpr() string {
	if op.vector != "" {
		return op.vector
	}
	return op.expr
}

// compiler compiles functions to vector code.
type compiler struct {
	*code
	*source
}

// scope has the values of a function's variables.
type scope map[string]value

// call compiles a function for the given arguments.
func (c *compiler) call(name string, args []value) value {
	f := c.funcs[name]
	if f == nil {
		c.fail("function %s", name)
	}
	s := scope{}
	n := 0
	for _, p := range f.Type.Params.List {
		for _, id := range p.Names {
			s[id.Name] = args[n]
			n++
		}
	}
	return c.statements(f.Body.List, s)
}

// statements compiles a list that ends by returning a value.
func (c *compiler) statements(list []ast.Stmt, s scope) value {
	for i, st := range list {
		rest := list[i+1:]
		switch st := st.(type) {
		case *ast.ReturnStmt:
			return c.expr(st.Results[0], s)
		case *ast.DeclStmt: // constants: the type checker has their values
		case *ast.AssignStmt:
			c.assign(st, s)
		case *ast.IfStmt:
			c.assign(st.Init, s)
			m := c.expr(st.Cond, s)
			var no []ast.Stmt
			if b, ok := st.Else.(*ast.BlockStmt); ok {
				no = b.List
			}
			return c.branch(m, st.Body.List, no, rest, s)
		case *ast.SwitchStmt:
			c.assign(st.Init, s)
			return c.cases(st.Body.List, rest, s)
		default:
			c.fail("statement %T", st)
		}
	}
	c.fail("no return")
	return value{}
}

// assign sets a variable to its value. There may be no statement.
func (c *compiler) assign(st ast.Stmt, s scope) {
	if st == nil {
		return
	}
	a := st.(*ast.AssignStmt)
	if len(a.Lhs) > 1 {
		c.fail("several assignments at a time")
	}
	name, v := a.Lhs[0].(*ast.Ident).Name, c.expr(a.Rhs[0], s)
	if a.Tok != token.ASSIGN && a.Tok != token.DEFINE {
		v = c.binary(strings.TrimSuffix(a.Tok.String(), "="), s[name], v)
	}
	s[name] = v
}

// cases compiles a switch without tag from its first case on.
func (c *compiler) cases(list, rest []ast.Stmt, s scope) value {
	if len(list) == 0 {
		return c.statements(rest, s)
	}
	k := list[0].(*ast.CaseClause)
	if k.List == nil {
		if len(list) > 1 {
			c.fail("cases behind the default")
		}
		return c.statements(append(k.Body[:len(k.Body):len(k.Body)], rest...), s)
	}
	m := c.expr(k.List[0], s)
	for _, e := range k.List[1:] {
		m = c.logical("||", m, c.expr(e, s))
	}
	yes, no := s.copy(), s.copy()
	x := c.statements(append(k.Body[:len(k.Body):len(k.Body)], rest...), yes)
	return c.choose(m, x, c.cases(list[1:], rest, no))
}

func (s scope) copy() scope {
	t := scope{}
	for k, v := range s {
		t[k] = v
	}
	return t
}

// branch compiles an if and the statements that follow. Where both sides only assign, their variables are selected,
// rather than the result.
func (c *compiler) branch(m value, yes, no, rest []ast.Stmt, s scope) value {
	if !assigns(yes) || !assigns(no) {
		x := c.statements(append(yes[:len(yes):len(yes)], rest...), s.copy())
		y := c.statements(append(no[:len(no):len(no)], rest...), s.copy())
		return c.choose(m, x, y)
	}
	a, b := s.copy(), s.copy()
	for _, st := range yes {
		c.assign(st, a)
	}
	for _, st := range no {
		c.assign(st, b)
	}
	for _, st := range append(yes[:len(yes):len(yes)], no...) {
		if name := st.(*ast.AssignStmt).Lhs[0].(*ast.Ident).Name; s[name].n > 0 {
			s[name] = c.choose(m, a[name], b[name])
		}
	}
	return c.statements(rest, s)
}

func assigns(list []ast.Stmt) bool {
	for _, st := range list {
		if _, ok := st.(*ast.AssignStmt); !ok {
			return false
		}
	}
	return true
}

// expr compiles an expression.
func (c *compiler) expr(e ast.Expr, s scope) value {
	tv := c.info.Types[e]
	if tv.Value != nil {
		return c.literal(tv)
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.expr(e.X, s)
	case *ast.Ident:
		v, ok := s[e.Name]
		if !ok {
			c.fail("variable %s", e.Name)
		}
		return v
	case *ast.UnaryExpr:
		return c.unary(e, s)
	case *ast.BinaryExpr:
		return c.operator(e, s)
	case *ast.CallExpr:
		return c.callExpr(e, s)
	}
	c.fail("expression %T", e)
	return value{}
}

// kindOf returns the basic type below a type.
func kindOf(t types.Type) string {
	switch name := t.Underlying().String(); name {
	case "untyped bool":
		return "bool"
	case "uint":
		return "uint64"
	case "int":
		return "int64"
	default:
		return name
	}
}

func (c *compiler) literal(tv types.TypeAndValue) value {
	kind := kindOf(tv.Type)
	switch kind {
	case "float32":
		f, _ := constant.Float32Val(tv.Value)
		return c.splat(kind, uint64(math.Float32bits(f)))
	case "float64":
		f, _ := constant.Float64Val(tv.Value)
		return c.splat(kind, math.Float64bits(f))
	case "int32", "uint32", "int64", "uint64":
		v := constant.ToInt(tv.Value)
		if i, ok := constant.Int64Val(v); ok {
			if width(kind) == 32 {
				return c.splat(kind, uint64(uint32(i)))
			}
			return c.splat(kind, uint64(i))
		}
		u, _ := constant.Uint64Val(v)
		return c.splat(kind, u)
	}
	c.fail("constant of type %s", kind)
	return value{}
}

func (c *compiler) unary(e *ast.UnaryExpr, s scope) value {
	x := c.expr(e.X, s)
	switch {
	case e.Op == token.NOT:
		return c.not(x)
	case e.Op == token.XOR:
		return c.bits("^", x, c.splat(x.kind, ^uint64(0)>>(64-width(x.kind))))
	case e.Op == token.SUB && float(x.kind):
		return c.bits("^", x, c.splat(x.kind, 1<<(width(x.kind)-1)))
	case e.Op == token.SUB:
		return c.binary("-", c.splat(x.kind, 0), x)
	}
	c.fail("operator %s", e.Op)
	return x
}

func (c *compiler) operator(e *ast.BinaryExpr, s scope) value {
	op := e.Op.String()
	x := c.expr(e.X, s)
	if e.Op == token.SHL || e.Op == token.SHR {
		if by := c.info.Types[e.Y].Value; by != nil {
			n, _ := constant.Int64Val(constant.ToInt(by))
			return c.shiftBy(op, x, int(n))
		}
		return c.shift(op, x, c.expr(e.Y, s))
	}
	y := c.expr(e.Y, s)
	switch e.Op {
	case token.LAND, token.LOR:
		return c.logical(op, x, y)
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		return c.compare(op, x, y)
	}
	return c.binary(op, x, y)
}

// roundings are the instruction's numbers of the rounding functions.
var roundings = map[string]int{"math.RoundToEven": 0, "math.Floor": 1, "math.Ceil": 2, "math.Trunc": 3}

func (c *compiler) callExpr(e *ast.CallExpr, s scope) value {
	if c.info.Types[e.Fun].IsType() {
		to := kindOf(c.info.Types[e.Fun].Type)
		if to == "float32" {
			if v, ok := c.single(e.Args[0], s); ok {
				return v
			}
		}
		return c.convert(c.expr(e.Args[0], s), to)
	}
	var args []value
	for _, a := range e.Args {
		args = append(args, c.expr(a, s))
	}
	name := types.ExprString(e.Fun)
	if v, ok := c.intrinsic(name, args); ok {
		return v
	}
	return c.call(name, args)
}

// single compiles the f64 function of an f32 value, rounded to f32, as the f32
// function, which has the same result.
func (c *compiler) single(e ast.Expr, s scope) (value, bool) {
	f, ok := e.(*ast.CallExpr)
	if !ok || len(f.Args) != 1 {
		return value{}, false
	}
	name := types.ExprString(f.Fun)
	_, rounding := roundings[name]
	arg, ok := f.Args[0].(*ast.CallExpr)
	if !ok || !rounding && name != "math.Sqrt" && name != "math.Abs" || types.ExprString(arg.Fun) != "float64" {
		return value{}, false
	}
	x := c.expr(arg.Args[0], s)
	if x.kind != "float32" {
		return value{}, false
	}
	return c.intrinsic(name, []value{x})
}

// intrinsic compiles calls that correspond to instructions.
func (c *compiler) intrinsic(name string, a []value) (value, bool) {
	as := func(kind string) value {
		v := a[0]
		v.kind = kind
		return v
	}
	if mode, ok := roundings[name]; ok {
		return c.round(a[0], mode), true
	}
	switch name {
	case "math.Float32bits":
		return as("uint32"), true
	case "math.Float32frombits":
		return as("float32"), true
	case "math.Float64bits":
		return as("uint64"), true
	case "math.Float64frombits":
		return as("float64"), true
	case "math.Sqrt":
		return each(a[0].kind, a[0].n, func(i int) vec { return c.op("VSQRT"+suffix(a[0].kind), a[0].v[i]) }), true
	case "math.Abs":
		return c.bits("&", a[0], c.splat(a[0].kind, 1<<(width(a[0].kind)-1)-1)), true
	case "math.FMA", "FMA32":
		r := each(a[0].kind, a[0].n, func(i int) vec { return c.fused(suffix(a[0].kind), a[0].v[i], a[1].v[i], a[2].v[i]) })
		if name == "FMA32" {
			return c.call("CanonF32", []value{r}), true
		}
		return r, true
	case "Flush":
		return c.flush(a[0]), true
	case "min", "max":
		if !float(a[0].kind) {
			return c.extreme(name, a[0], a[1]), true
		}
	case "Pick":
		return c.choose(a[0], a[2], a[1]), true
	case "bits.OnesCount32", "bits.OnesCount64", "bits.LeadingZeros32", "bits.LeadingZeros64":
		if c.masks {
			return c.counted(name, a[0]), true
		}
	}
	return value{}, false
}

// counted counts bits. The result is a uint64 for Go, but has the width of the operand here.
func (c *compiler) counted(name string, x value) value {
	op := "VPOPCNT"
	if strings.Contains(name, "Leading") {
		op = "VPLZCNT"
	}
	letter := "D"
	if wide(x.kind) {
		letter = "Q"
	}
	return each(x.kind, x.n, func(i int) vec { return c.op(op+letter, x.v[i]) })
}
