package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pegasus/internal/testkit"
	"pegasus/internal/usage"
)

// definesFlag matches the functions of package flag that define a flag whose help text is their last argument.
var definesFlag = regexp.MustCompile(`^(Bool|Duration|Float64|Int|Int64|String|Uint|Uint64)(Var)?$|^(Func|BoolFunc|TextVar|Var)$`)

// backquoted matches what package flag takes for a flag's metavariable, the name of its value: the first word
// between backquotes, whichever that is.
var backquoted = regexp.MustCompile("`([^`]*)`")

var metavariable = regexp.MustCompile(`^[a-z-]+$`)

// In each program's help a flag that takes a value names it by one word, and a flag without one names none. A quoted
// command in a help text would become such a name.
func TestFlagsNameTheirValues(t *testing.T) {
	flags := 0
	for _, dir := range []string{"cmd", "tools"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if kind, text, ok := flagDefinition(n); ok {
					flags++
					if problem := checkFlagText(kind, text); problem != "" {
						t.Errorf("%s: help text %q: %s", files.Position(n.Pos()), text, problem)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if flags < 50 {
		t.Errorf("found %d flags, want 50 or more: the programs define them in a way that this test does not find", flags)
	}
}

// flagDefinition returns the kind and the help text of a flag, if the node defines one.
func flagDefinition(n ast.Node) (kind, text string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 3 {
		return "", "", false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !definesFlag.MatchString(function.Sel.Name) || !slices.Contains([]string{"flag", "flags", "f"}, receiver(function.X)) {
		return "", "", false
	}
	text, ok = literal(call.Args[len(call.Args)-1])
	return strings.TrimSuffix(function.Sel.Name, "Var"), text, ok
}

// receiver returns the last name of a selector: flags for c.flags.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// literal returns the constant parts of a string expression.
func literal(x ast.Expr) (string, bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		left, okLeft := literal(x.X)
		right, okRight := literal(x.Y)
		return left + right, okLeft || okRight
	}
	return "", false
}

// checkFlagText returns the mistake in a help text, or "".
func checkFlagText(kind, text string) string {
	names := backquoted.FindAllStringSubmatch(text, -1)
	switch {
	case kind == "Bool" || kind == "BoolFunc":
		if len(names) > 0 {
			return "the flag takes no value: leave out the backquotes"
		}
	case len(names) != 1:
		return "put the name of the value, and nothing else, between backquotes"
	case !metavariable.MatchString(names[0][1]):
		return "the name of a value is one lower-case word"
	}
	return ""
}

// The man page of each program of section 8 names all flags of the page in its usage lines.
func TestFlagsOfManPages(t *testing.T) {
	option := regexp.MustCompile(`(?m)^\.TP\n\\fB(\S+?)(?: [A-Z]+)?\\fR$`)
	for _, program := range []string{"pegasusd", "pegasus-guest", "pegasus-libvirt", "pegasus-nvidia"} {
		page, err := exec.Command(testkit.Built(t, "bin/"+program), usage.ManCommand).Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		_, rest, _ := strings.Cut(string(page), ".SH SYNOPSIS\n")
		synopsis, options, found := strings.Cut(rest, ".SH DESCRIPTION\n")
		all := option.FindAllStringSubmatch(options, -1)
		if !found || len(all) == 0 {
			t.Fatalf("%s: the page has no usage lines or no flags:\n%s", program, page)
		}
		for _, match := range all {
			if !strings.Contains(synopsis, match[1]) {
				t.Errorf("%s: the usage lines lack %s:\n%s", program, match[1], synopsis)
			}
		}
	}
}
