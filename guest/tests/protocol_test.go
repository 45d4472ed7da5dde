package tests

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

func runs(t *testing.T, r run) string {
	t.Helper()
	out, err := r.do(t)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLaunches(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{spin: 20 * time.Microsecond}).start(t)
		runs(t, run{build: b, program: "launches", socket: h.path})
	})
}

func TestCopies(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{}).start(t)
		runs(t, run{build: b, program: "copies", socket: h.path})
	})
}

// A guest under another kernel than its host's isn't woken, and polls.
func TestApart(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{features: callbuf.FeatureApart}).start(t)
		runs(t, run{build: b, program: "copies", socket: h.path})
		g := callbuf.Geometry{RingSlots: 128, ReplySlots: 3, EventWords: 64, ReleaseWords: 2, ArenaBytes: 24 << 20}
		small := (&host{geometry: g, features: callbuf.FeatureApart}).start(t)
		runs(t, run{build: b, program: "copies", socket: small.path})
	})
}

// A segment may begin anywhere in its file: the rest belongs to others.
func TestPlaced(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{features: callbuf.FeatureApart, at: 12 << 12}).start(t)
		runs(t, run{build: b, program: "copies", socket: h.path})
	})
}

// A guest that finds the worker asleep sends one doorbell message, also if many threads do at once; one with a worker
// without a doorbell doesn't.
func TestRings(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		const features = callbuf.FeatureApart | callbuf.FeatureBell
		for _, f := range []uint64{callbuf.FeatureApart, features} {
			h := (&host{features: f}).start(t)
			runs(t, run{build: b, program: "rings", socket: h.path})
			const rounds = 20
			if n := h.rings.Load(); f == features && (n < rounds/2 || n > 3*rounds) || f != features && n != 0 {
				t.Errorf("features %d: rung %d times", f, n)
			}
		}
		h := (&host{features: features}).start(t)
		runs(t, run{build: b, program: "rings", socket: h.path, args: []string{"elsewhere"}})
	})
}

// A machine's agent is killed, repeatedly, while the worker continues: the program connects to the next agent. When
// that reports that the worker is lost, every call fails.
func TestAgentGone(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		var n atomic.Int32
		h := (&host{features: callbuf.FeatureApart, backs: make(chan *os.File, 1), before: func(g *guest, c cuda.Call, _ []byte) verdict {
			if n.Add(1)%50 == 0 && len(g.host.backs) == 0 {
				return orphan
			}
			return proceed
		}}).start(t)
		out := runs(t, run{build: b, program: "copies", socket: h.path, env: []string{"PEGASUS_LOG=info"}})
		if !strings.Contains(out, "the machine's agent has changed") {
			t.Errorf("it hasn't come back:\n%s", out)
		}
		h = (&host{features: callbuf.FeatureApart, before: func(_ *guest, c cuda.Call, _ []byte) verdict {
			if c.Op == cuda.OpCopyLinear {
				return die
			}
			return proceed
		}}).start(t)
		runs(t, run{build: b, program: "bereft", socket: h.path, args: []string{"999"}})
	})
}

// A daemon, or an agent, that ends during a request gets the request again from its successor.
func TestAskedAgain(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		for _, when := range []string{"hello", "map"} {
			h := &host{features: callbuf.FeatureApart}
			var tries atomic.Int32
			switch when {
			case "hello":
				h.hello = func(f uint64) bool {
					n := tries.Add(1)
					if afresh := f&callbuf.HelloAfresh != 0; afresh != (n > 1) {
						t.Errorf("try %d with features %#x", n, f)
					}
					return n > 2
				}
			case "map":
				h.mapped = func(callbuf.MapRequest) callbuf.MapReply {
					if tries.Add(1) <= 2 {
						return callbuf.MapReply{Result: cutOff}
					}
					return callbuf.MapReply{ArenaOK: true, DevOK: true}
				}
			}
			runs(t, run{build: b, program: "copies", socket: h.start(t).path})
		}
	})
}

// A process that is stopped for long during the rendezvous, as in a paused machine, has not timed out: it repeats its
// request.
func TestAskedAgainAfterPause(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		var tries atomic.Int32
		h := &host{
			features: callbuf.FeatureApart,
			came: func(pid int) {
				if tries.Add(1) == 1 {
					syscall.Kill(pid, syscall.SIGSTOP)
					time.Sleep(6 * time.Second) // longer than the timeout for a daemon
					syscall.Kill(pid, syscall.SIGCONT)
				}
			},
			hello: func(uint64) bool { return tries.Load() > 1 },
		}
		runs(t, run{build: b, program: "copies", socket: h.start(t).path})
	})
}

// A ring and an arena that are almost too small: every call waits for space.
func TestSmallSegment(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		g := callbuf.Geometry{RingSlots: 128, ReplySlots: 3, EventWords: 64, ReleaseWords: 2, ArenaBytes: 6 << 20}
		g.ArenaBytes = 24 << 20
		h := (&host{geometry: g}).start(t)
		runs(t, run{build: b, program: "copies", socket: h.path})
	})
}

// The guest works with any windows that the two sides can agree on.
func TestWindows(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{mapped: func(m callbuf.MapRequest) callbuf.MapReply {
			return callbuf.MapReply{ArenaOK: m.Arena != 0, DevOK: m.Device > 1}
		}}).start(t)
		runs(t, run{build: b, program: "copies", socket: h.path})

		none := (&host{mapped: func(callbuf.MapRequest) callbuf.MapReply { return callbuf.MapReply{} }}).start(t)
		out, err := run{build: b, program: "copies", socket: none.path}.do(t)
		if err == nil || !strings.Contains(out, "cuMemHostAlloc((void **)&p, MOST, 2) = 2 CUDA_ERROR_OUT_OF_MEMORY") {
			t.Errorf("without a shared arena: want all to work but pinned memory, got %v", err)
		}
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		for _, c := range []struct {
			name, socket, want string
			welcome            func(*callbuf.Welcome)
		}{
			{"no socket", "", "100", nil},
			{"no directory", absent(false), "802", nil},
			{"refused", "", "46 pegasus: the Pegasus daemon refused: full", func(w *callbuf.Welcome) {
				w.Result, w.Message = 46, "full"
			}},
			{"version", "", "803", func(w *callbuf.Welcome) { w.Version = 99 }},
			{"too small", "", "803", func(w *callbuf.Welcome) { w.SegmentBytes = 100 }},
			{"too large", "", "803", func(w *callbuf.Welcome) { w.SegmentBytes = 1 << 50 }},
			{"begins behind its file", "", "803", func(w *callbuf.Welcome) { w.Features, w.SegmentOffset = callbuf.HelloPlaced, 1<<40 }},
			{"ends behind its file", "", "803", func(w *callbuf.Welcome) { w.Features, w.SegmentOffset = callbuf.HelloPlaced, 4096 }},
		} {
			socket := c.socket
			if c.welcome != nil {
				socket = (&host{welcome: c.welcome}).start(t).path
			}
			out := runs(t, run{build: b, program: "start", socket: socket})
			number, said, _ := strings.Cut(c.want, " ")
			if !strings.Contains(out, "cuInit "+number+"\n") || !strings.Contains(out, said) {
				t.Errorf("%s: got %q, want %q", c.name, out, c.want)
			}
		}
	})
}

// Whichever way the worker ends, every call soon returns an error.
func TestDeath(t *testing.T) {
	for _, op := range []cuda.Op{
		cuda.OpContextCreate, cuda.OpMemAlloc, cuda.OpLaunch, cuda.OpCopyLinear, cuda.OpContextSynchronize, cuda.OpEventRecord,
	} {
		t.Run(op.String(), func(t *testing.T) {
			each(t, func(t *testing.T, b *build) {
				h := (&host{before: func(_ *guest, c cuda.Call, _ []byte) verdict {
					if c.Op == op {
						return die
					}
					return proceed
				}}).start(t)
				runs(t, run{build: b, program: "bereft", socket: h.path, args: []string{"999"}})

				h = (&host{before: func(g *guest, c cuda.Call, _ []byte) verdict {
					if c.Op == op {
						g.ch.Poison(int32(cuda.ErrorLaunchTimeout))
						return ignore
					}
					return proceed
				}}).start(t)
				runs(t, run{build: b, program: "bereft", socket: h.path, args: []string{"702"}})
			})
		})
	}
}

// Polling a stream reports the loss of the worker.
func TestQueryOutlivesWorker(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		for _, held := range []bool{false, true} {
			h := (&host{before: func(g *guest, c cuda.Call, _ []byte) verdict {
				switch c.Op {
				case cuda.OpStreamMark:
					return ignore
				case cuda.OpFill:
					g.ch.SetHeld(held)
					return die
				}
				return proceed
			}}).start(t)
			var args []string
			if held {
				args = []string{"held"}
			}
			runs(t, run{build: b, program: "polling", socket: h.path, args: args})
		}
	})
}

func TestForks(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{}).start(t)
		runs(t, run{build: b, program: "forks", socket: h.path})
	})
}

func TestReload(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{}).start(t)
		runs(t, run{build: b, program: "reload", socket: h.path})
	})
}

// Threads may be cancelled, and callbacks end their thread: other threads continue.
func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{welcome: func(*callbuf.Welcome) { time.Sleep(500 * time.Millisecond) }}).start(t)
		runs(t, run{build: b, program: "cancel", socket: h.path})
	})
}

// The sanitizers need the whole address space.
func TestLittleAddressSpace(t *testing.T) {
	h := (&host{}).start(t)
	out := runs(t, run{build: builds[0], program: "starved", socket: h.path})
	if want := "map the call buffer of"; !strings.Contains(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestExit(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{}).start(t)
		out := runs(t, run{build: b, program: "exits", socket: h.path})
		for _, want := range []string{"atexit: fine", "destructor: fine"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in %q", want, out)
			}
		}
	})
}

// Threads start and end, more at a time than there are reply slots; their default streams end with them.
func TestThreads(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		g := callbuf.DefaultGeometry()
		g.ReplySlots = 8
		h := (&host{geometry: g}).start(t)
		runs(t, run{build: b, program: "threads", socket: h.path})
		if made, gone := h.seen(cuda.OpStreamCreate), h.seen(cuda.OpStreamDestroy); made == 0 || made != gone {
			t.Errorf("%d streams created, %d destroyed", made, gone)
		}
	})
}

// As TestThreads under the thread sanitizer, which would end a program that maps memory at the usual windows.
func TestRaces(t *testing.T) {
	h := (&host{welcome: func(w *callbuf.Welcome) {
		w.ArenaBases = [callbuf.NumBases]uint64{0x40_0000_0000}
		w.DeviceBases = [callbuf.NumBases]uint64{0x20_0000_0000}
	}}).start(t)
	runs(t, run{build: racing, program: "threads", socket: h.path})
	runs(t, run{build: racing, program: "launches", socket: h.path})
}

// Objects in use by other threads can be unloaded: these get an error, and no freed memory is read.
func TestUnloads(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		h := (&host{}).start(t)
		runs(t, run{build: b, program: "unloads", socket: h.path})
	})
}

// The parts that need no host.
func TestUnits(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		runs(t, run{build: b, program: "units", own: []string{"core/range.c", "core/handle.c", "core/log.c", "image/image.c", "image/layout.c", "image/zstd.c"}})
	})
}

// The C side's wire format equals the Go side's.
func TestGolden(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		for _, name := range []string{"packet", "hello", "map"} {
			want, err := os.ReadFile("../../callbuf/testdata/" + name + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			out := runs(t, run{build: b, program: "golden", args: []string{name}})
			if got := hex.Dump([]byte(out)); got != string(want) {
				t.Errorf("%s: got\n%swant\n%s", name, got, want)
			}
		}
	})
}

// While the host waits with a call, a thread that queries a stream does not wait.
func TestQueriesOfStreams(t *testing.T) {
	each(t, func(t *testing.T, b *build) {
		leave := filepath.Join(t.TempDir(), "leave")
		h := (&host{before: func(g *guest, c cuda.Call, _ []byte) verdict {
			if c.Op == cuda.OpFill {
				g.ch.Publish()
				g.ch.SetHeld(true)
				for _, err := os.Stat(leave); err != nil && !g.host.stop.Load(); _, err = os.Stat(leave) {
					time.Sleep(time.Millisecond)
				}
				g.ch.SetHeld(false)
			}
			return proceed
		}}).start(t)
		runs(t, run{build: b, program: "held", socket: h.path, args: []string{leave}})
		if n := h.seen(cuda.OpStreamMark); n > 10 {
			t.Errorf("%d marks, want one for each stream and each time that it got work", n)
		}
	})
}
