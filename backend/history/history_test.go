package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/meter"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func busy(domain string) Reading {
	return Reading{Domain: domain, Accelerator: "gpu0", Elapsed: Interval, Used: 500 * time.Millisecond, Stood: time.Second, Share: 0.5, Entitled: 0.25,
		Calls: 200, Waits: meter.Waits{11: 100}, Memory: 4096}
}

// Work in flight behind other domains' counts as waiting, and the cost of requests beside the engines does not.
func TestBacklogged(t *testing.T) {
	for _, c := range []struct {
		engaged, all time.Duration
		want         float64
	}{
		{0, 2 * time.Second, 0.75}, // workers of earlier releases
		{1800 * time.Millisecond, 2 * time.Second, 0.9},
		{1800 * time.Millisecond, 600 * time.Millisecond, 0.8},
		{2 * Interval, 2 * time.Second, 1},
	} {
		r := busy("a")
		r.Engaged, r.All = c.engaged, c.all
		if got := r.Backlogged(); got != c.want {
			t.Errorf("engaged for %v beside %v of all: %v, want %v", c.engaged, c.all, got, c.want)
		}
	}
}

func TestSample(t *testing.T) {
	var r Recorder
	if h := r.Get(""); h.Domains == nil || len(h.Domains) != 0 || h.Interval != int64(Interval) {
		t.Errorf("without samples: %+v", h)
	}
	r.Add(start, []Reading{busy("web")})
	want := control.Sample{At: start.UnixNano(), Share: 0.5, Entitled: 0.25, Backlogged: true, WaitP99: 1024 + 1013, Calls: 100, Memory: 4096}
	h := r.Get("web")
	if len(h.Domains) != 1 || len(h.Domains[0].Samples) != 1 || h.Domains[0].Samples[0] != want {
		t.Errorf("%+v, want %+v", h, want)
	}
	if h := r.Get("other"); len(h.Domains) != 0 {
		t.Errorf("of an unknown domain: %+v", h)
	}
}

// For any coming and going of domains the recorder has the latest samples of those that are there, in order, and of no
// other domain.
func TestAnyDomains(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var r Recorder
	want := map[string][]int64{}
	now := start
	for range 3 * Kept {
		now = now.Add(Interval)
		var readings []Reading
		there := map[string]bool{}
		for i := range 8 {
			name := fmt.Sprint("d", i)
			if rnd.IntN(100*(i+1)) == 0 {
				continue // has gone
			}
			there[name] = true
			readings = append(readings, busy(name))
			want[name] = append(want[name], now.UnixNano())
			want[name] = want[name][max(len(want[name])-Kept, 0):]
		}
		for name := range want {
			if !there[name] {
				delete(want, name)
			}
		}
		r.Add(now, readings)
		for name, times := range want {
			got := r.Get(name).Domains[0].Samples
			if len(got) != len(times) {
				t.Fatalf("%s: %d samples, want %d", name, len(got), len(times))
			}
			for i := range got {
				if got[i].At != times[i] {
					t.Fatalf("%s: sample %d is of %d, want %d", name, i, got[i].At, times[i])
				}
			}
		}
		if got := r.Get(""); len(got.Domains) != len(want) {
			t.Fatalf("%d domains, want %d", len(got.Domains), len(want))
		}
	}
}

// Domains that are on no accelerator have no samples, and lose those that they have when these are all older.
func TestIdleDomains(t *testing.T) {
	var r Recorder
	off := Reading{Domain: "web", Elapsed: Interval}
	r.Add(start, []Reading{off})
	if n := len(r.Get("").Domains); n != 0 {
		t.Errorf("%d domains, want none that was never on an accelerator", n)
	}
	r.Add(start, []Reading{busy("web")})
	for range Kept - 1 {
		r.Add(start, []Reading{off})
	}
	if h := r.Get("web"); len(h.Domains) != 1 || h.Domains[0].Accelerator != "gpu0" || len(h.Domains[0].Samples) != Kept {
		t.Errorf("%+v", h)
	}
	r.Add(start, []Reading{off})
	if n := len(r.Get("").Domains); n != 0 {
		t.Errorf("%d domains, want none after %d samples on no accelerator", n, Kept)
	}
}

// The memory and the answer are bounded however many domains there are.
func TestBounds(t *testing.T) {
	var readings []Reading
	for i := range 2 * MaxDomains {
		r := busy(fmt.Sprintf("a-domain-with-a-name-of-the-greatest-length-that-is-allowed-%03d", i))
		r.Share, r.Entitled, r.Memory = 1.0/3, 1.0/7, 1<<41+1
		readings = append(readings, r)
	}
	var r Recorder
	for range Kept + 1 {
		r.Add(start, readings)
	}
	h := r.Get("")
	if len(h.Domains) != MaxDomains {
		t.Fatalf("%d domains, want %d", len(h.Domains), MaxDomains)
	}
	one, err := json.Marshal(h.Domains[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := len(one) * MaxDomains; n > control.MaxAnswer {
		t.Errorf("an answer with all domains has %d bytes, more than %d", n, control.MaxAnswer)
	}
}

// BenchmarkAdd is a reading of 200 domains.
func BenchmarkAdd(b *testing.B) {
	var readings []Reading
	for i := range 200 {
		readings = append(readings, busy(fmt.Sprint("d", i)))
	}
	var r Recorder
	for range Kept {
		r.Add(start, readings)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(start, readings)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/sample")
}
