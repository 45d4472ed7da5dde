package sim

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Row is an expected result: a value within bounds. The value is an expression over metrics, written
// PLAN.metric or PLAN.DOMAIN.metric, over the scenario's names for numbers, and over + - * /, abs, min, max,
// floor, ceil, sqrt, round, log2 and below (1 or 0).
type Row struct {
	Text  string
	Value string
	Min   *float64
	Max   *float64

	tree ast.Expr
}

func (r *Row) check() error {
	tree, err := parser.ParseExpr(r.Value)
	if err != nil {
		return fmt.Errorf("row %q: value = %q: %w", r.Text, r.Value, err)
	}
	if r.Min == nil && r.Max == nil {
		return fmt.Errorf("row %q: give min, max or both", r.Text)
	}
	if r.Min != nil && r.Max != nil && *r.Min > *r.Max {
		return fmt.Errorf("row %q: min = %v, max = %v: no value is within them", r.Text, *r.Min, *r.Max)
	}
	r.tree = tree
	return nil
}

// holds reports whether v is within the bounds.
func (r *Row) holds(v float64) bool {
	return !math.IsNaN(v) && (r.Min == nil || v >= *r.Min) && (r.Max == nil || v <= *r.Max)
}

// scope resolves names: metrics of plans, and other numbers.
type scope struct {
	metricOf func(plan, domain, metric string) (float64, error)
	let      map[string]float64
}

var functions = map[string]func(...float64) float64{
	"abs":   func(v ...float64) float64 { return math.Abs(v[0]) },
	"floor": func(v ...float64) float64 { return math.Floor(v[0]) },
	"ceil":  func(v ...float64) float64 { return math.Ceil(v[0]) },
	"sqrt":  func(v ...float64) float64 { return math.Sqrt(v[0]) },
	"round": func(v ...float64) float64 { return math.Round(v[0]) },
	"below": func(v ...float64) float64 { // 1 if the first is no more than the last
		if v[0] <= v[len(v)-1] {
			return 1
		}
		return 0
	},
	"log2": func(v ...float64) float64 { return math.Log2(v[0]) },
	"min": func(v ...float64) float64 {
		least := v[0]
		for _, x := range v {
			least = math.Min(least, x)
		}
		return least
	},
	"max": func(v ...float64) float64 {
		most := v[0]
		for _, x := range v {
			most = math.Max(most, x)
		}
		return most
	},
}

// arguments is the number of a function's arguments, unless it takes any number.
var arguments = map[string]int{"abs": 1, "floor": 1, "ceil": 1, "sqrt": 1, "round": 1, "log2": 1, "below": 2}

// value returns the value of an expression.
func (s *scope) value(e ast.Expr) (float64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.ParenExpr:
		return s.value(e.X)
	case *ast.UnaryExpr:
		v, err := s.value(e.X)
		if e.Op != token.SUB {
			return 0, fmt.Errorf("unknown operator %v; there are +, -, *, /", e.Op)
		}
		return -v, err
	case *ast.BinaryExpr:
		return s.binary(e)
	case *ast.CallExpr:
		return s.call(e)
	case *ast.Ident:
		if v, ok := s.let[e.Name]; ok {
			return v, nil
		}
		return 0, fmt.Errorf("%q isn't a number that the scenario lets%s", e.Name, closest(e.Name, slices.Sorted(maps.Keys(s.let))))
	case *ast.SelectorExpr:
		return s.metric(e)
	}
	return 0, errors.New("unknown kind of expression; there are numbers, metrics, functions and operators")
}

func (s *scope) binary(e *ast.BinaryExpr) (float64, error) {
	x, err := s.value(e.X)
	if err != nil {
		return 0, err
	}
	y, err := s.value(e.Y)
	if err != nil {
		return 0, err
	}
	switch e.Op {
	case token.ADD:
		return x + y, nil
	case token.SUB:
		return x - y, nil
	case token.MUL:
		return x * y, nil
	case token.QUO:
		return x / y, nil
	}
	return 0, fmt.Errorf("unknown operator %v; there are +, -, *, /", e.Op)
}

func (s *scope) call(e *ast.CallExpr) (float64, error) {
	name, ok := e.Fun.(*ast.Ident)
	if !ok || functions[name.Name] == nil || len(e.Args) == 0 {
		return 0, fmt.Errorf("only abs, min, max, floor, ceil, sqrt, round, log2 and below can be called, with arguments")
	}
	if want, fixed := arguments[name.Name]; fixed && len(e.Args) != want {
		return 0, fmt.Errorf("%s has %d arguments, not %d", name.Name, want, len(e.Args))
	}
	var args []float64
	for _, a := range e.Args {
		v, err := s.value(a)
		if err != nil {
			return 0, err
		}
		args = append(args, v)
	}
	return functions[name.Name](args...), nil
}

// metric returns the value of PLAN.metric or PLAN.DOMAIN.metric.
func (s *scope) metric(e *ast.SelectorExpr) (float64, error) {
	plan, domain := "", ""
	switch x := e.X.(type) {
	case *ast.Ident:
		plan = x.Name
	case *ast.SelectorExpr:
		p, ok := x.X.(*ast.Ident)
		if !ok {
			return 0, fmt.Errorf("write PLAN.metric or PLAN.DOMAIN.metric")
		}
		plan, domain = p.Name, x.Sel.Name
	}
	return s.metricOf(plan, domain, e.Sel.Name)
}
