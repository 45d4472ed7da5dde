package test

import (
	"os"
	"testing"

	"pegasus/accel/ptx/cases"
)

// readCases reads the engine's cases of PTX.
func readCases(t *testing.T) []cases.Case {
	read := func(name string, parse func(string) ([]cases.Case, error)) []cases.Case {
		text, err := os.ReadFile("../accel/soft/lane/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		list, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return list
	}
	return append(read("forms.txt", cases.Forms), read("cases.txt", cases.Kernels)...)
}

// The PTX cases give the same results through the driver API as in the engine.
func TestPTXCases(t *testing.T) {
	h := startHost(t, oneDomain)
	d, err := cases.Start(h.guest("one", program(t, "cases")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	list := readCases(t)
	for i := range list {
		if i%3 != 0 { // one or two of the four variants of each form; the engine's tests have them all
			continue
		}
		c := &list[i]
		if result, buffers, err := d.Run(c, c.Newest()); err != nil {
			t.Fatal(err)
		} else if result != 0 {
			t.Errorf("%s: result %d", c.Name, result)
		} else if err := c.Check(buffers); err != nil {
			t.Error(err)
		}
	}
}
