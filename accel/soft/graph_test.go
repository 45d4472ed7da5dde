package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// chain returns a graph of n launches, one after the other.
func chain(t *testing.T, c *Context, m *Module, n uint32) accel.Graph {
	t.Helper()
	nodes := make([]accel.GraphNode, n)
	for i := range nodes {
		w := launchOf(m)
		nodes[i].Work = &w
		if i > 0 {
			nodes[i].After = []uint32{uint32(i) - 1}
		}
	}
	g, r := c.NewGraph(nodes, nil)
	want(t, r, cuda.Success)
	return g
}

// A graph that was predicted to be brief, and is not, releases the engine before its end, and is charged in parts.
func TestLongBatchTakesTurns(t *testing.T) {
	for name, busy := range map[string]bool{"where submitted": false, "behind others": true} {
		t.Run(name, func(t *testing.T) {
			page := newPage(t, engine.Options{Memory: 64 << 20})
			d, c := open(t, page.share)
			_, other := open(t, page.share)
			const pieces = 40
			var ran, seen atomic.Int32
			others := make(chan struct{})
			m := goModule(c, 0, nil)
			m.functions[0].code = loneCode{func(*run) *fault {
				if ran.Add(1) == 1 {
					quick := goModule(other, 0, func(*run) *fault { seen.Store(ran.Load()); return nil })
					if r := other.Submit(other.DefaultStream(), launchOf(quick), func(cuda.Result, accel.Usage) { close(others) }); r != cuda.Success {
						t.Error(r)
					}
				}
				time.Sleep(5 * time.Millisecond)
				return nil
			}}
			learn(d, m, 1)
			g := chain(t, c, m, pieces)
			if busy {
				slow := goModule(c, 0, func(*run) *fault { time.Sleep(10 * time.Millisecond); return nil })
				submit(t, c, c.DefaultStream(), launchOf(slow))
			}
			var spent, whole atomic.Int64
			done := newWaiter()
			want(t, c.Submit(c.DefaultStream(), accel.Replay{Graph: g, Spent: func(u accel.Usage) {
				if whole.Load() != 0 || u.Class != accel.Compute {
					t.Errorf("told of %+v, after the end: %t", u, whole.Load() != 0)
				}
				spent.Add(u.End - u.Start)
			}}, func(r cuda.Result, u accel.Usage) {
				whole.Store(u.End - u.Start)
				done.done(r, u)
			}), cuda.Success)
			want(t, done.wait(t), cuda.Success)
			<-others
			if n := ran.Load(); n != pieces {
				t.Errorf("%d of %d kernels ran", n, pieces)
			}
			if n := seen.Load(); n >= pieces {
				t.Errorf("another process got the engine after %d kernels of %d", n, pieces)
			}
			if s, w := spent.Load(), whole.Load(); s < w/2 || s > w || w < pieces*5e6 {
				t.Errorf("told of %d ns as it went on, of %d in all", s, w)
			}
		})
	}
}

// The parts of a graph are reported as they end.
func TestReplaySpends(t *testing.T) {
	_, c := open(t, nil)
	let := make(chan struct{})
	m := goModule(c, 0, func(*run) *fault { time.Sleep(time.Millisecond); <-let; return nil })
	g := chain(t, c, m, 3)
	partsSpent := make(chan accel.Usage, 3)
	done := newWaiter()
	want(t, c.Submit(c.DefaultStream(), accel.Replay{Graph: g, Spent: func(u accel.Usage) { partsSpent <- u }}, done.done), cuda.Success)
	for range 3 {
		let <- struct{}{}
		if u := <-partsSpent; u.Class != accel.Compute || u.End-u.Start < 1e6 {
			t.Errorf("told of %+v", u)
		}
	}
	want(t, done.wait(t), cuda.Success)
}
