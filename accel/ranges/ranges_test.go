package ranges

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pegasus/accel"
	"pegasus/test/seeds"
)

// page is the model's state of one page of a range.
type page struct {
	view   int // number of the view, 0: none
	access accel.Access
}

// model is a range of pages of one byte, done the plain way.
type model struct {
	start uint64
	pages [32]page
}

func (m *model) at(at, n uint64) []page {
	if n == 0 || at < m.start || at-m.start >= 32 || n > 32-(at-m.start) {
		return nil
	}
	return m.pages[at-m.start:][:n]
}

func (m *model) whole(at, n uint64) []page {
	p := m.at(at, n)
	if p == nil || slices.ContainsFunc(p, func(p page) bool { return p.view == 0 }) {
		return nil
	}
	i := at - m.start
	if i > 0 && m.pages[i-1].view == p[0].view || i+n < 32 && m.pages[i+n].view == p[n-1].view {
		return nil
	}
	return p
}

func (m *model) usable(at, n uint64) (all []Span) {
	for i := 0; i < 32; i++ {
		from := i
		for i < 32 && m.pages[i].access != accel.NoAccess {
			i++
		}
		s := Span{m.start + uint64(from), m.start + uint64(i)}
		if i > from && s.Start <= at+n && s.End >= at {
			all = append(all, s)
		}
	}
	return all
}

// play applies the operations that the script encodes to a range and to the model, and compares their results.
func play(t *testing.T, script []byte) {
	const start = 1000
	r, m := New[int](start, 32), &model{start: start}
	for step := 0; len(script) >= 3; step++ {
		op, at, n := script[0]%4, start-2+uint64(script[1]%36), uint64(script[2]%12)
		script = script[3:]
		free := m.at(at, n) != nil && !slices.ContainsFunc(m.at(at, n), func(p page) bool { return p.view != 0 })
		if r.Free(at, n) != free {
			t.Fatalf("step %d: %d bytes at %d are free: %v", step, n, at, !free)
		}
		whole := m.whole(at, n)
		if (r.Whole(at, n) != nil) != (whole != nil) {
			t.Fatalf("step %d: %d bytes at %d are whole views: %v", step, n, at, whole == nil)
		}
		switch {
		case op == 0 && free:
			r.Put(View[int]{At: at, Bytes: n, Of: step})
			for i := range m.at(at, n) {
				m.at(at, n)[i] = page{view: step + 1}
			}
		case op == 1:
			r.Drop(at, n)
			clear(whole)
		case op >= 2:
			a := []accel.Access{accel.NoAccess, accel.ReadWrite}[op-2]
			r.Allow(at, n, a)
			for i := range whole {
				whole[i].access = a
			}
		}
		if m.at(at, n) == nil {
			continue
		}
		if got, want := r.Usable(at, n), m.usable(at, n); !slices.Equal(got, want) {
			t.Fatalf("step %d: round %d bytes at %d there is %v, want %v", step, n, at, got, want)
		}
	}
}

func TestRandomRanges(t *testing.T) {
	seed := seeds.Fixed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	script := make([]byte, 600)
	for range 2000 {
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		play(t, script)
	}
}

func FuzzRanges(f *testing.F) {
	f.Add([]byte{0, 4, 4, 0, 8, 4, 3, 4, 8, 1, 4, 4})
	f.Fuzz(play)
}
