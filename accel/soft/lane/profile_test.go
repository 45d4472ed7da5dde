package lane

import (
	"slices"
	"strings"
	"testing"
)

// Executions and lanes are counted exactly, also where threads part, and some time is measured.
func TestProfile(t *testing.T) {
	src := string(entry(`
	mov.u32 %r2, %ctaid.x; mul.wide.u32 %a2, %r2, 1200; add.u64 %a0, %a0, %a2;
	mov.u32 %r1, 0;
again:
	add.u32 %r1, %r1, 1; // looped
	setp.lt.u32 %p1, %r1, 10;
	@%p1 bra again; // back
	setp.ge.u32 %p2, %t, 100;
	@%p2 bra rest;
	add.u32 %r1, %r1, 5; // some
rest:
	st.global.u32 [%a0], %r1; // all`))
	d := newDevice(t)
	k := d.kernel(d.load([]byte(src)), "k")
	l := d.launch(k, x(3), x(300), d.buffer(4*900), 0)
	l.Profile, l.Cores = new(Profile), 2 // which workers share
	for range 2 {
		if f := k.Run(l); f != nil {
			t.Fatal(f)
		}
	}
	costs := map[string]LineCost{}
	text := strings.Split(src, "\n")
	for _, c := range l.Profile.Lines() {
		if _, mark, ok := strings.Cut(text[c.Line-1], "// "); ok {
			costs[mark] = c
		}
		if c.Time < 0 {
			t.Errorf("line %d took %v", c.Line, c.Time)
		}
	}
	// Two launches of three blocks, of a group with 256 threads and one with 44, all of them beyond
	// 100. They meet at the end.
	for mark, want := range map[string][2]uint64{
		"looped": {10 * 12, 10 * 1800}, "back": {10 * 12, 10 * 1800}, "some": {6, 6 * 100}, "all": {12, 1800},
	} {
		if c := costs[mark]; c.Runs != want[0] || c.Lanes != want[1] {
			t.Errorf("%s: %d executions of %d lanes, want %d of %d", mark, c.Runs, c.Lanes, want[0], want[1])
		}
	}
	if all := l.Profile.Lines(); all[0].Time == 0 {
		t.Error("no time was measured")
	}
	// Without a profile a worker that had one stops counting.
	before, p := l.Profile.Lines(), l.Profile
	l.Profile = nil
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
	if after := p.Lines(); !slices.Equal(after, before) {
		t.Errorf("without a profile: %v, before that %v", after, before)
	}
}
