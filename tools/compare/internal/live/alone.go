package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"pegasus/sim"
)

// Alone is the measured times of a workload's program with the accelerator to itself.
type Alone struct {
	Program []string      `json:"program"`
	Kernel  time.Duration `json:"kernel_ns"` // accelerator time of a run, without copies
	Copy    time.Duration `json:"copy_ns"`   // to and from the device
	Period  time.Duration `json:"period_ns"` // from run to run
}

// sizeHere stands for a program's size in its arguments: the size with which a run takes as long on this
// machine as in the scenario.
const sizeHere = "{size}"

// Calibrate measures every program by itself, each for the given time, and returns the scenario with the
// times measured here in place of its own: the prediction for this machine. The scenario determines which
// part of a run's time is the CPU's before its first call and between its calls, and, if it does, the bytes
// that calls copy: then the engines' bandwidth is the measured one.
func (s *Stage) Calibrate(ctx context.Context, sc *sim.Scenario, d time.Duration) (*sim.Scenario, map[string]Alone, error) {
	here := *sc
	here.Workloads = map[string]sim.Workload{}
	found := map[string]Alone{}
	for i := range sc.Domains {
		name := sc.Domains[i].Workload
		w, err := sc.Workload(&sc.Domains[i])
		if err != nil {
			return nil, nil, err
		}
		if _, done := found[name]; done {
			continue
		}
		a, err := s.fit(ctx, w, d)
		if err != nil {
			return nil, nil, fmt.Errorf("workload %s, alone: %w", name, err)
		}
		found[name] = a
		here.Workloads[name] = a.workload(w)
		if b := a.bandwidth(w); b > 0 {
			here.Override = maps.Clone(here.Override)
			if here.Override == nil {
				here.Override = sim.Override{}
			}
			here.Override["bandwidth"] = fmt.Sprint(int64(b))
		}
	}
	return &here, found, nil
}

// workload returns w with the times of a.
func (a Alone) workload(w sim.Workload) sim.Workload {
	calls := time.Duration(max(w.Calls, 1))
	w.Program = a.Program
	w.In, w.Out, w.Call, w.Post, w.Think = 0, 0, 0, 0, 0
	if w.CallIn+w.CallOut == 0 {
		a.Kernel += a.Copy // its few copies are not separated
		a.Copy = 0
	}
	w.Kernel = max(a.Kernel/calls, 1)
	gap := max(a.Period-a.Kernel-a.Copy, 0)
	if w.Pre > 0 {
		w.CPU = min(w.CPU, gap)
		w.Pre = gap - w.CPU
	} else {
		w.CPU = gap / calls
	}
	return w
}

// bandwidth returns the bandwidth of the copies of the workload's calls, in bytes per second; 0 if it has
// none.
func (a Alone) bandwidth(w sim.Workload) float64 {
	bytes := int64(w.CallIn+w.CallOut) * int64(max(w.Calls, 1))
	if a.Copy <= 0 {
		return 0
	}
	return float64(bytes) / a.Copy.Seconds()
}

// fit measures the program of a workload, with the size that suits this machine if its arguments leave that
// open.
func (s *Stage) fit(ctx context.Context, w sim.Workload, d time.Duration) (Alone, error) {
	if !slices.Contains(w.Program, sizeHere) {
		return s.alone(ctx, w.Program, d)
	}
	size, err := findSize(w.Kernel*time.Duration(max(w.Calls, 1)), func(size int) (time.Duration, error) {
		for span := d / 8; ; span *= 2 { // a program may need a while to begin
			a, err := s.alone(ctx, sized(w.Program, size), span)
			if !errors.Is(err, errNothing) || span >= d {
				return a.Kernel, err
			}
		}
	})
	if err != nil {
		return Alone{}, err
	}
	return s.alone(ctx, sized(w.Program, size), d)
}

// sized returns the arguments with the size inserted.
func sized(args []string, size int) []string {
	out := slices.Clone(args)
	for i := range out {
		if out[i] == sizeHere {
			out[i] = strconv.Itoa(size)
		}
	}
	return out
}

// Limits of the search for a size.
const (
	firstSize = 16
	maxSize   = 1 << 20
	sizeTries = 8
	sizeNear  = 0.04 // part of the target time
)

// findSize searches the size for which took is nearest to the target time, assuming a power law of the size: the secant
// method on logarithms. It returns the best size tried.
func findSize(want time.Duration, took func(size int) (time.Duration, error)) (best int, err error) {
	if want <= 0 {
		return 0, fmt.Errorf("the workload gives no kernel time to choose %s for", sizeHere)
	}
	distance := math.Inf(1)
	seen := map[int]bool{}
	size, power := firstSize, 1.0
	var lastSize, lastTook float64
	for range sizeTries {
		t, err := took(size)
		if err != nil {
			return 0, err
		}
		seen[size] = true
		now := math.Log(float64(max(t, 1)))
		off := math.Log(float64(want)) - now
		if math.Abs(off) < distance {
			best, distance = size, math.Abs(off)
		}
		if distance < sizeNear {
			break
		}
		if at := math.Log(float64(size)); lastSize != 0 && at != lastSize {
			power = min(max((now-lastTook)/(at-lastSize), 0.5), 4)
		}
		lastSize, lastTook = math.Log(float64(size)), now
		next := int(math.Round(float64(size) * math.Exp(min(max(off/power, -4), 4))))
		next = min(max(next, 1), maxSize)
		if seen[next] { // its neighbour on the other side may be nearer
			if next += 1; off < 0 {
				next -= 2
			}
		}
		if next < 1 || seen[next] {
			break
		}
		size = next
	}
	return best, nil
}

const trial = "trial"

var errNothing = errors.New("nothing was done")

func (s *Stage) alone(ctx context.Context, args []string, d time.Duration) (a Alone, err error) {
	if len(args) == 0 {
		return a, errors.New("it names no program")
	}
	h, err := s.open("[[accelerator]]\nname = \"gpu\"\ntype = \"soft\"\ncores = 1\nmemory = \"1GiB\"\npolicy = \"none\"\n[[domain]]\nname = \"" + trial + "\"\n")
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	p, err := h.program(trial, args, 0)
	if err != nil {
		return a, err
	}
	defer stop([]*program{p})
	if err := h.await(ctx, []string{trial}, []*program{p}); err != nil {
		return a, err
	}
	time.Sleep(d)
	reports, err := finish([]*program{p})
	if err != nil {
		return a, err
	}
	usage, err := h.domains()
	if err != nil {
		return a, err
	}
	r := reports[trial][0]
	if r.Launches == 0 {
		return a, fmt.Errorf("%w in %v", errNothing, d)
	}
	return Alone{
		Program: args,
		Kernel:  time.Duration(float64(usage[trial].Compute) / (r.Launches + 1)), // one to warm up
		Copy:    time.Duration(float64(usage[trial].Copy) / (r.Launches + 1)),
		Period:  time.Duration(r.Seconds * 1e9 / r.Launches),
	}, nil
}
