package sim

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
)

// Row is what shall hold: a value within bounds. The value is an expression over
// metrics, which are written PLAN.metric or PLAN.DOMAIN.metric, over the names that
// the scenario lets stand for numbers, and over + - * /, abs, min, max, floor, ceil,
// sqrt, round, log2 and below (1 or 0).
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
	r.tree = tree
	return nil
}

// holds says whether v is within the bounds.
func (r *Row) holds(v float64) bool {
	return !math.IsNaN(v) && (r.Min == nil || v >= *r.Min) && (r.Max == nil || v <= *r.Max)
}

// scope is what names mean: the metrics of each plan, and other numbers.
type scope struct {
	plans map[string]Metrics
	let   map[string]float64
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

// value of an expression.
func (s *scope) value(e ast.Expr) (float64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.ParenExpr:
		return s.value(e.X)
	case *ast.UnaryExpr:
		v, err := s.value(e.X)
		if e.Op != token.SUB {
			return 0, fmt.Errorf("operator %v isn't known", e.Op)
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
		return 0, fmt.Errorf("%s isn't a number that the scenario lets", e.Name)
	case *ast.SelectorExpr:
		return s.metric(e)
	}
	return 0, fmt.Errorf("an expression of this kind isn't known")
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
	return 0, fmt.Errorf("operator %v isn't known", e.Op)
}

func (s *scope) call(e *ast.CallExpr) (float64, error) {
	name, ok := e.Fun.(*ast.Ident)
	if !ok || functions[name.Name] == nil || len(e.Args) == 0 {
		return 0, fmt.Errorf("only abs, min, max, floor, ceil, sqrt, round, log2 and below can be called, with arguments")
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

// metric is PLAN.metric or PLAN.DOMAIN.metric.
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
	m, ok := s.plans[plan]
	if !ok {
		return 0, fmt.Errorf("there is no plan %q", plan)
	}
	v, ok := m[domain][e.Sel.Name]
	if !ok {
		return 0, fmt.Errorf("plan %s has no metric %q of %q", plan, e.Sel.Name, domain)
	}
	return v, nil
}
