package gate

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func newPage(t *testing.T) *Page {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Free() })
	return p
}

// write makes workers write lines in turn until all are dropped, and returns the bytes written.
func write(workers []*LogAllowance) (sum int) {
	const line = 100
	for refused := false; !refused; {
		refused = true
		for _, w := range workers {
			if w.Take(line) {
				sum += line
				refused = false
			}
		}
	}
	return sum
}

func workersOf(p *Page, n int) (all []*LogAllowance) {
	for range n {
		all = append(all, p.Log())
	}
	return all
}

// Any number of workers, including successive ones, together write as much as one may.
func TestLogAllowanceIsTheDomains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t)
		all := workersOf(p, 64)
		if n := write(all); n > LogBurst || n < LogBurst-100 {
			t.Errorf("at once: %d bytes, want %d", n, LogBurst)
		}
		if lost := p.LogLost(); lost < 64*100 || lost > 2*64*100 {
			t.Errorf("%d bytes count as lost, want those of one line each", lost)
		}
		if n := write(workersOf(p, 64)); n != 0 {
			t.Errorf("later workers wrote %d bytes", n)
		}
		time.Sleep(time.Second)
		if n := write(all); n > LogRate+100 || n < LogRate-100 {
			t.Errorf("after a second: %d bytes, want %d", n, LogRate)
		}
		next := newPage(t)
		next.SetLogSpent(p.LogSpent())
		if n := write(workersOf(next, 64)); n > 100 {
			t.Errorf("on the domain's next page: %d bytes", n)
		}
		time.Sleep(24 * time.Hour)
		if n := write(all); n > LogBurst {
			t.Errorf("after a day: %d bytes, want at most %d", n, LogBurst)
		}
	})
}

// A worker that writes an invalid value into the page gains for others at most one worker's allowance, and reduces
// theirs at most to their share.
func TestLogAllowanceOfASpoiledPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t)
		w := []*LogAllowance{p.Log()}
		sum := 0
		for range 100 {
			p.at.header.logged.spent.Store(math.MinInt64)
			sum += write(w)
		}
		if sum > LogBurst {
			t.Errorf("with an allowance that another worker refills: %d bytes, want at most %d", sum, LogBurst)
		}
		p.at.header.logged.spent.Store(math.MaxInt64)
		w[0] = p.Log()
		if n := write(w); n == 0 || n > LogBurst/logShare {
			t.Errorf("with a time to come in the page: %d bytes, want at most %d", n, LogBurst/logShare)
		}
		if p.LogSpent() > Now() {
			t.Error("the daemon takes a time to come for the domain's next page")
		}
	})
}
