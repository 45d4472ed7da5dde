//go:build cgo

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"pegasus/accel/nvidia"
	"pegasus/accel/nvidia/listing"
)

// rounds is the number of runs of an empty kernel each way; up to half of them may be disturbed.
const rounds = 31

// switching measures the cost of changing between two processes' contexts, which is the additional time of an
// empty kernel after another process's kernel, the memory that a context occupies, and the device's memory.
func switching(library, device string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), listing.Patience)
	defer cancel()
	one, err := startPart(ctx, library, device)
	if err != nil {
		return err
	}
	defer one.end()
	before, err := one.unused()
	if err != nil {
		return err
	}
	other, err := startPart(ctx, library, device)
	if err != nil {
		return err
	}
	defer other.end()
	after, err := one.unused()
	if err != nil {
		return err
	}
	alone, err := timesOf(one)
	if err != nil {
		return err
	}
	together, err := timesOf(one, other)
	if err != nil {
		return err
	}
	takes := before - min(after, before)
	cost := listing.Switching{Cost: max(median(together)-median(alone), 0), Context: takes, Unused: before + takes}
	return json.NewEncoder(out).Encode(cost)
}

// timesOf makes parts run their kernels in turn, and returns the times.
func timesOf(parts ...*part) (all []time.Duration, err error) {
	for range rounds {
		for _, p := range parts {
			took, err := p.run()
			if err != nil {
				return nil, err
			}
			all = append(all, took)
		}
	}
	return all, nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// part is a process with a context of its own.
type part struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPart(ctx context.Context, library, device string) (*part, error) {
	p := &part{cmd: exec.CommandContext(ctx, "/proc/self/exe", "switching-part", "--library", library, "--device", device)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := p.run(); err != nil { // the first one loads the kernel onto the device
		p.end()
		return nil, err
	}
	return p, nil
}

// Requests to a part.
const (
	askRun    = "run"    // the run time of its kernel, in nanoseconds
	askUnused = "unused" // the free bytes of the device's memory
)

// run makes the part run its kernel, and returns the time measured there.
func (p *part) run() (took time.Duration, err error) {
	err = p.ask(askRun, &took)
	return took, err
}

func (p *part) unused() (bytes uint64, err error) {
	err = p.ask(askUnused, &bytes)
	return bytes, err
}

func (p *part) ask(what string, answer any) error {
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		return err
	}
	if _, err := fmt.Fscanln(p.out, answer); err != nil {
		return fmt.Errorf("measure what contexts cost: %w", err)
	}
	return nil
}

func (p *part) end() {
	p.in.Close()
	p.cmd.Wait()
}

// switchingPart has a context, and answers the requests that it reads.
func switchingPart(library, device string, in io.Reader, out io.Writer) error {
	e, err := nvidia.NewEmpty(library, device)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if lines.Text() == askUnused {
			n, err := e.Unused()
			if err != nil {
				return err
			}
			fmt.Fprintln(out, n)
			continue
		}
		began := time.Now()
		if err := e.Run(); err != nil {
			return err
		}
		fmt.Fprintln(out, time.Since(began).Nanoseconds())
	}
	return nil
}
