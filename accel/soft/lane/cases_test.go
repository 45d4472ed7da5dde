package lane

import (
	"os"
	"strings"
	"testing"

	"pegasus/accel/ptx/cases"
)

// readCases reads testdata/forms.txt and testdata/cases.txt, which document their format.
func readCases(t testing.TB) (forms, kernels []cases.Case) {
	t.Helper()
	read := func(name string, parse func(string) ([]cases.Case, error)) []cases.Case {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		list, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return list
	}
	return read("forms.txt", cases.Forms), read("cases.txt", cases.Kernels)
}

func runCase(t *testing.T, c *cases.Case) {
	t.Helper()
	d := newDevice(t)
	k := d.kernel(d.load([]byte(c.Newest())), "k")
	var args []any
	var memory [][]byte
	for _, b := range c.Buffers {
		m := d.buffer(len(b.Before))
		copy(m.mem, b.Before)
		args, memory = append(args, m), append(memory, m.mem)
	}
	l := d.launch(k, x(1), x(c.Threads), args...)
	l.Params = append(l.Params, c.Values...)
	if f := k.Run(l); f != nil {
		t.Errorf("%s: %v", c.Name, f)
	} else if err := c.Check(memory); err != nil {
		t.Error(err)
	}
}

// Every form gives the bits that were worked out by hand, for uniform and for varying operands, with all threads and
// with some.
func TestForms(t *testing.T) { eachEngine(t, testForms) }

func testForms(t *testing.T) {
	forms, _ := readCases(t)
	for i := range forms {
		runCase(t, &forms[i])
	}
}

func TestCases(t *testing.T) {
	_, kernels := readCases(t)
	for i := range kernels {
		_, name, _ := strings.Cut(kernels[i].Name, ": ")
		t.Run(name, func(t *testing.T) { runCase(t, &kernels[i]) })
	}
}

// readForms reads testdata/forms.txt.
func readForms(t testing.TB) []cases.Form {
	t.Helper()
	text, err := os.ReadFile("testdata/forms.txt")
	if err != nil {
		t.Fatal(err)
	}
	forms, err := cases.ReadForms(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return forms
}
