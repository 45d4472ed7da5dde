package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel/soft/lane"
	"pegasus/tools/measure/internal/peer"
	"pegasus/tools/measure/internal/ptxc"
	"pegasus/tools/measure/internal/workload"
)

// kernelRounds is the number of runs of each kernel each way, in turn; medians count.
const kernelRounds = 11

// kernels compares the software accelerator on one core with the same PTX
// translated to C, and with the same formulas in OpenCL C.
func kernels(_ context.Context, _ io.Writer) ([]Figure, error) {
	var beside, other []Figure
	err := onOneProcessor(func() error {
		for _, name := range workload.Names {
			gcc, pocl, err := compareKernel(name)
			if err != nil {
				return err
			}
			beside, other = append(beside, gcc), append(other, pocl)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := append(beside, other...)
	return append(all, Figure{Name: "kernels over pocl's, geometric mean", Value: geometricMean(other), Unit: "times"}), nil
}

// compareKernel runs a workload in the engine and elsewhere, in turn.
func compareKernel(name string) (gcc, pocl Figure, err error) {
	w, err := workload.New(name)
	if err != nil {
		return gcc, pocl, err
	}
	defer w.Close()
	ways := []func() (time.Duration, error){onOneCore(w)}
	for _, start := range []func(*workload.Workload) (*peer.Peer, error){startC, startOpenCL} {
		p, err := start(w)
		if err != nil {
			return gcc, pocl, fmt.Errorf("%s: %w", name, err)
		}
		defer p.Close()
		ways = append(ways, func() (time.Duration, error) { return p.Run(launches(w)) })
	}
	runtime.GC()
	took, err := inTurn(w, ways)
	if err != nil {
		return gcc, pocl, err
	}
	return beside(name+", gcc", took[0], took[1]), beside(name+", pocl", took[0], took[2]), nil
}

// processorTime returns the processor time that a function costs this process: other programs that run at the
// same time hardly count.
func processorTime(f func() error) (time.Duration, error) {
	start := processorClock()
	err := f()
	return processorClock() - start, err
}

func processorClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has that clock
	}
	return time.Duration(t.Nano())
}

// beside returns a figure with a peer's time.
func beside(name string, ours, theirs time.Duration) Figure {
	value, other := ours.Seconds()*1e3, theirs.Seconds()*1e3
	ratio := value / other
	return Figure{Name: name, Value: value, Unit: "ms", Peer: &other, Ratio: &ratio}
}

// geometricMean returns the geometric mean of the figures' ratios.
func geometricMean(figures []Figure) float64 {
	sum := 0.0
	for _, f := range figures {
		sum += math.Log(*f.Ratio)
	}
	return math.Exp(sum / float64(len(figures)))
}

// inTurn runs a workload each way, checks that the results agree, and returns medians.
func inTurn(w *workload.Workload, ways []func() (time.Duration, error)) ([]time.Duration, error) {
	times := make([][]time.Duration, len(ways))
	var first []float32
	for round := range 1 + kernelRounds {
		for i, way := range ways {
			w.Clear()
			took, err := way()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				times[i] = append(times[i], took)
				continue
			}
			// The first round warms up.
			if i == 0 {
				first = w.Result()
			} else if err := w.Compare(first, w.Result()); err != nil {
				return nil, err
			}
		}
	}
	medians := make([]time.Duration, len(ways))
	for i := range times {
		medians[i] = median(times[i])
	}
	return medians, nil
}

// withoutVectors measures the engine with some of the processor's vector instructions switched off, beside
// all of them.
func withoutVectors(ctx context.Context, stderr io.Writer) (all []Figure, err error) {
	err = onOneProcessor(func() error {
		full, err := engineWith(ctx, stderr)
		if err != nil {
			return err
		}
		for _, less := range [][2]string{{"AVX2 only", "cpu.avx512f=off"}, {"no vector instructions", "cpu.avx2=off"}} {
			slow, err := engineWith(ctx, stderr, "GODEBUG="+less[1])
			if err != nil {
				return err
			}
			for i, f := range slow {
				ratio := f.Value / full[i].Value
				all = append(all, Figure{Name: f.Name + ", " + less[0], Value: f.Value, Unit: f.Unit, Peer: &full[i].Value, Ratio: &ratio})
			}
		}
		return nil
	})
	return all, err
}

// withCompiler measures the engine with the compiler, beside the interpreter.
func withCompiler(ctx context.Context, stderr io.Writer) (all []Figure, err error) {
	if lane.UseEngine("compiler") != nil {
		return nil, nil // the processor has no AVX-512, or the system permits no executable memory
	}
	if err := lane.UseEngine(os.Getenv(lane.EngineVariable)); err != nil { // for what follows
		return nil, err
	}
	err = onOneProcessor(func() error {
		compiled, err := engineWith(ctx, stderr, lane.EngineVariable+"=compiler")
		if err != nil {
			return err
		}
		interpreted, err := engineWith(ctx, stderr, lane.EngineVariable+"=interpreter")
		if err != nil {
			return err
		}
		for i, f := range compiled {
			ratio := f.Value / interpreted[i].Value
			all = append(all, Figure{Name: f.Name + ", compiler", Value: f.Value, Unit: f.Unit, Peer: &interpreted[i].Value, Ratio: &ratio})
		}
		all = append(all, Figure{Name: "compiler over interpreter, geometric mean", Value: geometricMean(all), Unit: "times"})
		return nil
	})
	return all, err
}

// engineWith returns the result of engineTimes in a separate program with additional variables in its environment:
// GODEBUG can switch instructions off.
func engineWith(ctx context.Context, stderr io.Writer, variables ...string) ([]Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-engine")
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stderr = stderr
	return figures(cmd)
}

// engineTimes measures the engine alone, on one core.
func engineTimes() (all []Figure, err error) {
	for _, name := range workload.Names {
		w, err := workload.New(name)
		if err != nil {
			return nil, err
		}
		took, err := inTurn(w, []func() (time.Duration, error){onOneCore(w)})
		w.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, Figure{Name: name, Value: took[0].Seconds() * 1e3, Unit: "ms"})
	}
	return all, nil
}

// onOneCore returns a function that runs a workload in the engine on one core.
func onOneCore(w *workload.Workload) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		return processorTime(func() error { return w.Run(1) })
	}
}

// twoCores measures how much faster kernels are on two cores than on one.
func twoCores(_ context.Context, _ io.Writer) (all []Figure, err error) {
	if runtime.NumCPU() < 2 {
		return nil, nil
	}
	for _, name := range workload.Names {
		f, err := speedup(name)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return append(all, Figure{Name: "two cores over one, geometric mean", Value: geometricMean(all), Unit: "times"}), nil
}

func speedup(name string) (Figure, error) {
	w, err := workload.New(name)
	if err != nil {
		return Figure{}, err
	}
	defer w.Close()
	on := func(cores int) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			start := time.Now()
			err := w.Run(cores)
			return time.Since(start), err
		}
	}
	runtime.GC()
	took, err := inTurn(w, []func() (time.Duration, error){on(2), on(1)})
	if err != nil {
		return Figure{}, err
	}
	f := beside(name+", two cores", took[0], took[1])
	*f.Ratio = 1 / *f.Ratio
	return f, nil
}

// startC starts a program that runs a workload's PTX as C.
func startC(w *workload.Workload) (*peer.Peer, error) {
	text, err := ptxc.Translate(w.Module)
	if err != nil {
		return nil, err
	}
	return peer.C(w.Module, text, memoryOf(w))
}

// startOpenCL starts a program that runs a workload's formula in OpenCL C.
func startOpenCL(w *workload.Workload) (*peer.Peer, error) {
	return peer.OpenCL(w.Module, w.OpenCL, memoryOf(w))
}

func memoryOf(w *workload.Workload) peer.Memory {
	return peer.Memory{File: w.Arena().File, Size: w.Arena().Size, Address: workload.Address}
}

// launches returns a workload's launches in the format of peers.
func launches(w *workload.Workload) (all []peer.Launch) {
	for _, l := range w.Launches {
		all = append(all, peer.NewLaunch(w.Module, l.Kernel, l.Grid, l.Block, l.Params))
	}
	return all
}
