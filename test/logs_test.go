package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// levels are the methods of slog.Logger that take a message and then fields; With takes fields only.
var levels = []string{"Debug", "Info", "Warn", "Error", "With"}

// logFields returns the fields of the log lines in a file, with a place of each, and places where a field's name is no
// constant.
func logFields(t *testing.T, path string, text any) (fields map[string]string, odd []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	fields = map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(levels, method.Sel.Name) || !isLogger(method.X) {
			return true
		}
		first := 1
		if method.Sel.Name == "With" {
			first = 0
		}
		for i := first; i < len(call.Args); i += 2 {
			at := set.Position(call.Args[i].Pos()).String()
			lit, ok := call.Args[i].(*ast.BasicLit)
			switch {
			case call.Ellipsis.IsValid() && i == len(call.Args)-1: // a list, such as attrs
			case !ok || lit.Kind != token.STRING || i+1 == len(call.Args):
				odd = append(odd, at)
			default:
				key, _ := strconv.Unquote(lit.Value)
				fields[key] = at
			}
		}
		return true
	})
	return fields, odd
}

// isLogger reports whether an expression is a logger, by its name or by the function that returns it.
func isLogger(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.CallExpr: // logs.New(…).With(…)
		if f, ok := x.Fun.(*ast.SelectorExpr); ok {
			owner, _ := f.X.(*ast.Ident)
			return f.Sel.Name == "New" && owner != nil && (owner.Name == "logs" || owner.Name == "slog") || f.Sel.Name == "With" && isLogger(f.X)
		}
		f, ok := x.Fun.(*ast.Ident)
		return ok && f.Name == "logger"
	}
	return name == "log" || name == "Log" || name == "logger" || name == "note"
}

// The log lines of all programs have the fields that docs/logs.md lists, and no others.
func TestLogFields(t *testing.T) {
	page, err := os.ReadFile("../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllSubmatch(page, -1) {
		listed[string(m[1])] = true
	}
	used := map[string]string{"uid": "", "remote": "", "absent": "", "accelerators": "", "adopted": "", "left_out": "", "lines": ""} // of lists and writers, which no call shows
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "build" || d.Name() == "test" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fields, odd := logFields(t, path, nil)
		for _, at := range odd {
			t.Errorf("%s: a field's name is no constant, or has no value", at)
		}
		maps.Copy(used, fields)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if !listed[key] {
			t.Errorf("%s: the field %q is not in docs/logs.md; use a name from there, or add it", used[key], key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := used[key]; !ok {
			t.Errorf("docs/logs.md lists %q, and no log line has it", key)
		}
	}
}

func TestLogFieldsAreFound(t *testing.T) {
	fields, odd := logFields(t, "x.go", `package x
func f() {
	d.log.With("domain", a).Info("m", "bytes", 3)
	logs.New(w, nil).Error("m", "err", err)
	log.Warn(what+" x", key, 1)
	log.Info("m", attrs...)
	t.Error("no", "field", "x")
}`)
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, []string{"bytes", "domain", "err"}) || len(odd) != 1 {
		t.Errorf("got %v, %v", got, odd)
	}
}
