// Package history keeps the latest samples of each domain: share, waits, calls and memory over the last ten minutes.
//
// Callers: backend adds readings, and passes the time; backend/api returns the samples.
//
// Trust boundary: none. Readings come from backend/guests, which bounds figures of workers.
//
// Locks: Recorder.mu is a leaf.
package history

import (
	"maps"
	"slices"
	"sync"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/meter"
)

const (
	// Interval is the period at which readings are added.
	Interval = 2 * time.Second
	// Kept is the number of samples of each domain: ten minutes.
	Kept = 300
	// MaxDomains bounds the domains with samples: at 40 bytes a sample they occupy at most 12 MiB, and an answer with
	// all of them stays below control.MaxAnswer.
	MaxDomains = 1024
)

// Reading is a domain's activity since its previous reading.
type Reading struct {
	Domain      string
	Accelerator string        // empty: on none
	Elapsed     time.Duration // since the previous reading; 0: this is the first, and the other times and counts are 0
	Used        time.Duration // its work held engines
	All         time.Duration // the work of all domains of its accelerator did
	Stood       time.Duration // its requests waited for admission, all of them together
	Engaged     time.Duration // it had work, waiting or in flight; at most the elapsed time
	Share       float64       // part of the time that all domains of the accelerator used, 0 to 1
	Entitled    float64       // part of the accelerator, 0 to 1; 0: nothing is owed
	Calls       uint64
	Waits       meter.Waits // of requests that were admitted
	Memory      uint64      // bytes of device memory
}

// Backlogged returns the part of the elapsed time, 0 to 1, in which the domain had work: on an engine, or waiting.
func (r *Reading) Backlogged() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	behind := Behind(int64(r.Engaged), int64(r.Used), int64(r.Stood), int64(r.All))
	return min(max(float64(int64(r.Used+r.Stood)+behind)/float64(r.Elapsed), 0), 1)
}

// Behind returns for how long a domain's admitted work waited behind that of other domains. It had work for the time
// engaged, used engines and stood before the gate for parts of it, and all domains together used engines for the time
// all. The rest of the time engaged was the cost of its requests beside the engines.
func Behind(engaged, used, stood, all int64) int64 {
	return max(min(engaged-used-stood, all-used), 0)
}

// PerSecond returns a count as a rate over the elapsed time.
func (r *Reading) PerSecond(n uint64) float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(n) / r.Elapsed.Seconds()
}

// sample is a control.Sample in less memory.
type sample struct {
	at, waitP99, memory    int64
	share, entitled, calls float32
	backlogged             bool
}

// ring has the latest samples of a domain.
type ring struct {
	accelerator string
	samples     []sample // a ring once it has Kept samples
	next        int      // index of the oldest sample, once there are Kept
	idle        int      // samples since the domain was on an accelerator
	present     bool     // the latest readings have the domain
}

// Recorder keeps the samples. Its zero value is empty and ready to use. Its methods may be called from any goroutine.
type Recorder struct {
	mu    sync.Mutex
	rings map[string]*ring
}

// Add adds a sample of each domain, and removes the samples of domains without a reading. A domain has samples from when
// it is first on an accelerator until it has been on none for as long as samples are kept.
func (r *Recorder) Add(now time.Time, readings []Reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rings == nil {
		r.rings = map[string]*ring{}
	}
	for _, g := range r.rings {
		g.present = false
	}
	at := now.UnixNano()
	for i := range readings {
		in := &readings[i]
		g := r.rings[in.Domain]
		if g == nil {
			if in.Accelerator == "" || len(r.rings) >= MaxDomains {
				continue
			}
			g = &ring{}
			r.rings[in.Domain] = g
		}
		g.present = true
		g.add(at, in)
	}
	maps.DeleteFunc(r.rings, func(_ string, g *ring) bool { return !g.present || g.idle >= Kept })
}

func (g *ring) add(at int64, in *Reading) {
	if in.Accelerator != "" {
		g.accelerator, g.idle = in.Accelerator, 0
	} else {
		g.idle++
	}
	if in.Elapsed <= 0 {
		return
	}
	s := sample{
		at: at, waitP99: in.Waits.Quantile(0.99), memory: int64(in.Memory), share: float32(in.Share), entitled: float32(in.Entitled),
		calls: float32(in.PerSecond(in.Calls)), backlogged: in.Backlogged() >= 0.5,
	}
	if len(g.samples) < Kept {
		g.samples = append(g.samples, s)
		return
	}
	g.samples[g.next] = s
	g.next = (g.next + 1) % Kept
}

// Get returns the samples of a domain, or of all domains by name if it is empty. A domain without samples has none in
// the result.
func (r *Recorder) Get(domain string) control.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := control.History{Interval: int64(Interval), Domains: []control.DomainHistory{}}
	names := []string{domain}
	if domain == "" {
		names = slices.Sorted(maps.Keys(r.rings))
	}
	for _, name := range names {
		if g := r.rings[name]; g != nil {
			h.Domains = append(h.Domains, g.show(name))
		}
	}
	return h
}

func (g *ring) show(name string) control.DomainHistory {
	out := control.DomainHistory{Domain: name, Accelerator: g.accelerator, Samples: make([]control.Sample, 0, len(g.samples))}
	for i := range g.samples {
		s := &g.samples[(g.next+i)%len(g.samples)]
		out.Samples = append(out.Samples, control.Sample{
			At: s.at, Share: float64(s.share), Entitled: float64(s.entitled), Backlogged: s.backlogged,
			WaitP99: s.waitP99, Calls: float64(s.calls), Memory: s.memory,
		})
	}
	return out
}
