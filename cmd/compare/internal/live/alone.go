package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pegasus/sim"
)

// Alone is what a workload's program does with the accelerator to itself.
type Alone struct {
	Program []string      `json:"program"`
	Kernel  time.Duration `json:"kernel_ns"` // accelerator time of a run
	Period  time.Duration `json:"period_ns"` // from run to run
}

// Calibrate tries every program out by itself, for so long, and returns the scenario
// with what its workloads take here in place of what it says they do: the prediction
// for this machine. How much of a run's time is the CPU's before its first call, and
// how much between its calls, is as the scenario has it.
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
		a, err := s.alone(ctx, w.Program, d)
		if err != nil {
			return nil, nil, fmt.Errorf("workload %s, alone: %w", name, err)
		}
		found[name] = a
		here.Workloads[name] = a.workload(w)
	}
	return &here, found, nil
}

// workload is w with the times of a.
func (a Alone) workload(w sim.Workload) sim.Workload {
	calls := time.Duration(max(w.Calls, 1))
	w.Kernel = max(a.Kernel/calls, 1)
	w.In, w.Out, w.CallIn, w.CallOut, w.Call, w.Post, w.Think = 0, 0, 0, 0, 0, 0, 0
	gap := max(a.Period-a.Kernel, 0)
	if w.Pre > 0 {
		w.CPU = min(w.CPU, gap)
		w.Pre = gap - w.CPU
	} else {
		w.CPU = gap / calls
	}
	return w
}

const trial = "trial"

func (s *Stage) alone(ctx context.Context, args []string, d time.Duration) (a Alone, err error) {
	if len(args) == 0 {
		return a, errors.New("it names no program")
	}
	h, err := s.open("[[accelerator]]\nname = \"gpu\"\ntype = \"soft\"\ncores = 1\nmemory = \"1GiB\"\npolicy = \"none\"\n[[domain]]\nname = \"" + trial + "\"\n")
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	p, err := h.program(trial, args)
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
	told, err := h.domains()
	if err != nil {
		return a, err
	}
	r := reports[trial][0]
	if r.Launches == 0 {
		return a, fmt.Errorf("nothing was done in %v", d)
	}
	return Alone{
		Program: args,
		Kernel:  time.Duration(float64(told[trial].GPU) / (r.Launches + 1)), // one to warm up
		Period:  time.Duration(r.Seconds * 1e9 / r.Launches),
	}, nil
}
