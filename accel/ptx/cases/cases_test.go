package cases

import (
	"slices"
	"strings"
	"testing"
)

// A form is a kernel with what its threads must leave, and so is a kernel of several instructions.
func TestCases(t *testing.T) {
	forms, err := Forms("# a comment\n\nsetp.lt.s32 r|p r:ffffffff -#1 !p:1 = 5|1 open\n")
	if err != nil || len(forms) != 4 {
		t.Fatal(forms, err)
	}
	if c := &forms[2]; !c.mayDiffer() || !strings.HasPrefix(c.Name, "line 3: ") || !strings.Contains(c.Newest(), "setp.lt.s32 %r7|%p7, %r0, -0x1, !%p2;") ||
		!slices.Equal(c.Buffers[0].After[:16], append(words(5, 1), 0, 0, 0, 0, 0, 0, 0, 0)) {
		t.Errorf("%+v", c)
	}
	kernels, err := Kernels("== first\nthreads 2\nmemory 7\nmodule .global .u32 x;\nadd.u32 %r1, %t, 1;\n= %r1 1 2\n= memory 8 9\n== second\nopen\n= %p1 1\n")
	if err != nil || len(kernels) != 2 {
		t.Fatal(kernels, err)
	}
	if kernels[0].mayDiffer() || !kernels[1].mayDiffer() {
		t.Error("want the second kernel open, and the first not")
	}
	c := &kernels[0]
	if c.Name != "line 1: first" || c.Threads != 2 || !slices.Equal(c.Buffers[0].After, longs(1, 2)) || c.Buffers[1].Before[0] != 7 ||
		!slices.Equal(c.Buffers[1].After, words(8, 9)) || !strings.Contains(c.Newest(), ".global .u32 x;\n.visible .entry") {
		t.Errorf("%+v", c)
	}
	if err := c.Check([][]byte{longs(1, 2), words(8, 9, 3)}); err != nil {
		t.Error(err)
	}
	if c.Check([][]byte{longs(1, 3), words(8, 9, 3)}) == nil || c.Check([][]byte{longs(1, 2), words(8, 8)}) == nil {
		t.Error("what differs is not noticed")
	}
}

// Only an open case may end differently on a GPU, and an approximation may have other bits.
func TestComparison(t *testing.T) {
	list, err := Kernels("== firm\nadd.u32 %r1, 1, 2;\n= %r1 3\n== approximate\nsin.approx.f32 %r1, 0f00000000;\n= %r1 0\n== open\nopen\nadd.u32 %r1, 1, 2;\n= %r1 3\n")
	if err != nil {
		t.Fatal(err)
	}
	var r Comparison
	for i := range list {
		right := [][]byte{list[i].Buffers[0].After, nil}
		r.add(&list[i], 0, right)
		r.add(&list[i], 0, [][]byte{longs(9), nil})
		r.add(&list[i], 715, right)
		r.add(&list[i], 218, right)
	}
	if r.Same != 3 || len(r.Unknown) != 3 || !slices.Equal(r.Free, []string{list[1].Name, list[2].Name, list[2].Name}) || len(r.Wrong) != 3 {
		t.Errorf("%+v", r)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"\nadd.u32 r r:1 r:2": "line 2", "add.u32 = 1": "line 1", "add.u32 r r:x = 1": "line 1", "add.u32 r - = 1": "line 1", "add.u32 r r:1 =": "line 1",
	} {
		if _, err := Forms(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"ret;", "== a\nthreads x", "== a\n= %r1 g", "== a\nmemory 100000000", "== a\nopen\n= %r1 x"} {
		if _, err := Kernels(text); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
