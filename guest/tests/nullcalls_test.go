package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pegasus/cuda"
)

// parameterTable returns a line per exported symbol, with a letter per parameter, in the format of
// programs/nullcalls.c.
func parameterTable(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../cuda/spec/driver_api.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Functions []struct {
			Symbol string
			Params []struct{ Type, Class string }
		}
	}
	if err := json.Unmarshal(b, &api); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, f := range api.Functions {
		fmt.Fprintf(&s, "%s ", f.Symbol)
		for _, p := range f.Params {
			s.WriteByte(letter(p.Type, p.Class))
		}
		s.WriteByte('\n')
	}
	if len(api.Functions) != len(cuda.Symbols()) {
		t.Fatalf("%d functions in the facts, %d symbols", len(api.Functions), len(cuda.Symbols()))
	}
	return s.String()
}

func letter(ctype, class string) byte {
	switch {
	case strings.HasSuffix(class, "*") || strings.HasSuffix(strings.TrimSpace(ctype), "*") || strings.HasSuffix(ctype, "]"):
		return 'p'
	case class == "callback":
		return 'c'
	case class == "handle" || class == "handle64":
		return 'h'
	case class == "devptr":
		return 'd'
	}
	return 's'
}

// allowedResults reads testdata/results.txt.
type allowedResults []struct {
	pattern string
	results []int
}

func readAllowed(t *testing.T) (a allowedResults) {
	t.Helper()
	b, err := os.ReadFile("testdata/results.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		rule := struct {
			pattern string
			results []int
		}{pattern: f[0]}
		for _, n := range f[1:] {
			r, err := strconv.Atoi(n)
			if err != nil {
				t.Fatalf("results.txt: %q: %v", line, err)
			}
			rule.results = append(rule.results, r)
		}
		a = append(a, rule)
	}
	return a
}

func (a allowedResults) ok(symbol string, result int) bool {
	for _, rule := range a {
		before, after, glob := strings.Cut(rule.pattern, "*")
		fits := symbol == rule.pattern
		if glob {
			fits = strings.HasPrefix(symbol, before) && strings.Contains(symbol[len(before):], after)
		}
		if fits && slices.Contains(rule.results, result) {
			return true
		}
	}
	return false
}

// Null pointers and absurd numbers return documented errors and crash no call. Runs against a real worker use the same
// program and table.
func TestNullCalls(t *testing.T) {
	table, allowed := parameterTable(t), readAllowed(t)
	stubs := map[string]bool{}
	for _, s := range cuda.Symbols() {
		if s.Kind == cuda.SymbolStub {
			stubs[s.Name] = true
		}
	}
	each(t, func(t *testing.T, b *build) {
		for _, mode := range []string{"none", "init", "context"} {
			t.Run(mode, func(t *testing.T) {
				h := (&host{}).start(t)
				checkNullCalls(t, b, mode, h.path, table, func(symbol string, result int) bool {
					if stubs[symbol] {
						return result == 801 || mode == "none" && result == 3
					}
					return allowed.ok(symbol, result)
				})
			})
		}
	})
}

func checkNullCalls(t *testing.T, b *build, mode, socket, table string, ok func(string, int) bool) {
	t.Helper()
	cmd := exec.Command(b.program(t, "nullcalls"), mode)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.dir, "PEGASUS_SOCKET="+socket, "PEGASUS_LOG=off",
		"ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1")
	cmd.Stdin = strings.NewReader(table)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	calls := 0
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		f := strings.Fields(s.Text())
		result, number := 0, error(nil)
		if len(f) == 3 {
			result, number = strconv.Atoi(f[2])
		}
		switch {
		case len(f) != 3 || number != nil:
			t.Errorf("%s", s.Text())
		case !ok(f[0], result):
			t.Errorf("%s, pattern %s: %v", f[0], f[1], cuda.Result(result))
		}
		calls++
	}
	if err != nil {
		said := stderr.String()
		t.Errorf("nullcalls %s: %v\n%s", mode, err, said[:min(len(said), 8000)])
	}
	if calls < 10*len(cuda.Symbols()) {
		t.Errorf("only %d calls were made", calls)
	}
}
