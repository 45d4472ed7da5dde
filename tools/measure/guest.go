package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

func built(name string) string {
	return filepath.Join(cmp.Or(os.Getenv("PEGASUS_BUILD"), "build"), name)
}

// house is the directory of a private daemon: it starts with the first guest, serves the following ones, and
// ends shortly after the last.
type house struct{ dir string }

func newHouse() (*house, error) {
	dir, err := os.MkdirTemp("", "pegasus-measure-")
	if err != nil {
		return nil, err
	}
	return &house{dir}, os.Chmod(dir, 0o755) // workers run as other users
}

// close blocks until the daemon has ended.
func (h *house) close() {
	for end := time.Now().Add(10 * time.Second); len(h.processes()) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	os.RemoveAll(h.dir)
}

// guest returns a command that runs a program as a guest.
func (h *house) guest(ctx context.Context, stderr io.Writer, flags []string, program string, args ...string) *exec.Cmd {
	all := append([]string{"run", "--domain", "measure", "--runtime-dir", h.dir}, flags...)
	all = append(append(all, "--", program), args...)
	cmd := exec.CommandContext(ctx, built("bin/pegasus"), all...)
	cmd.Stderr = stderr
	return cmd
}

// figures returns the figures that a guest prints as JSON.
func figures(cmd *exec.Cmd) (all []Figure, err error) {
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &all)
	return all, err
}

// calls measures driver calls and copies.
func calls(ctx context.Context, stderr io.Writer) ([]Figure, error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	defer h.close()
	at := filepath.Join(h.dir, "rpc.sock")
	l, err := serveRPC(at)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return figures(h.guest(ctx, stderr, nil, built("bench/calls"), "--json", "--rpc", at))
}

// copiesOnOne measures copies where guest, worker and daemon have one processor.
func copiesOnOne(ctx context.Context, stderr io.Writer) ([]Figure, error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	defer h.close()
	var found []Figure
	err = onOneProcessor(func() (err error) {
		found, err = figures(h.guest(ctx, stderr, nil, built("bench/calls"), "--json", "--copies"))
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].Name += ", one processor"
	}
	return found, nil
}

// onOneProcessor calls a function that has one processor, with all programs that it starts.
func onOneProcessor(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with its affinity
		var one unix.CPUSet
		one.Set(0)
		err := unix.SchedSetaffinity(0, &one)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// load is requests of one length.
type load struct {
	length string // of a request
	ms     string
	queue  string // requests kept in flight; 0 waits for each
	what   string
}

// A program that runs all the time is measured in slices, two without a policy and two under the default one
// in each round, in an order in which slow drift cancels out. The median of the rounds counts.
const (
	rounds = 10
	slice  = 150 * time.Millisecond
)

var order = []string{"none", "accc", "accc", "none"}

// overhead compares the throughput of one domain under the default policy and without one.
func overhead(ctx context.Context, stderr io.Writer) ([]Figure, error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	defer h.close()
	var all []Figure
	for _, l := range []load{
		{"1 ms", "1", "2", "queued"}, {"1 ms", "1", "0", "each waited for"},
		{"100 µs", "0.1", "2", "queued"}, {"100 µs", "0.1", "0", "each waited for"},
	} {
		percent, err := h.overhead(ctx, stderr, l)
		if err != nil {
			return nil, err
		}
		all = append(all, Figure{Name: fmt.Sprintf("overhead of scheduling, requests of %s, %s", l.length, l.what), Value: percent, Unit: "%"})
	}
	return all, nil
}

func (h *house) overhead(ctx context.Context, stderr io.Writer, l load) (percent float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	busy := h.guest(ctx, stderr, nil, built("bench/busy"), "--kernel-ms", l.ms, "--queue", l.queue, "--seconds", "600", "--quiet", "--no-check")
	if err := busy.Start(); err != nil {
		stop()
		return 0, err
	}
	defer busy.Wait()
	defer stop()
	time.Sleep(time.Second) // it determines the length of its kernels
	var ratios []float64
	for range rounds {
		var calls, took [2]float64
		for _, policy := range order {
			n, d, err := h.slice(ctx, policy)
			if err != nil {
				return 0, err
			}
			i := 0
			if policy != "none" {
				i = 1
			}
			calls[i] += n
			took[i] += d.Seconds()
		}
		if calls[0] == 0 {
			return 0, errors.New("nothing was called")
		}
		ratios = append(ratios, calls[1]/took[1]/(calls[0]/took[0]))
	}
	slices.Sort(ratios)
	return (1 - (ratios[rounds/2-1]+ratios[rounds/2])/2) * 100, nil
}

// slice returns the number of calls made under a policy in a slice, and the slice's length.
func (h *house) slice(ctx context.Context, policy string) (calls float64, took time.Duration, err error) {
	if _, err := h.ask(ctx, "policy", policy); err != nil {
		return 0, 0, err
	}
	time.Sleep(slice / 10)
	before, start, err := h.calls(ctx)
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(slice)
	after, end, err := h.calls(ctx)
	return after - before, end.Sub(start), err
}

// calls returns the number of calls of the domain so far.
func (h *house) calls(ctx context.Context) (n float64, at time.Time, err error) {
	text, err := h.ask(ctx, "domains", "--json")
	at = time.Now()
	if err != nil {
		return 0, at, err
	}
	var domains []struct{ Calls float64 }
	if err := json.Unmarshal(text, &domains); err != nil {
		return 0, at, err
	}
	for _, d := range domains {
		n += d.Calls
	}
	return n, at, nil
}

// ask runs an operator's command.
func (h *house) ask(ctx context.Context, args ...string) ([]byte, error) {
	return exec.CommandContext(ctx, built("bin/pegasus"), append(args, "--runtime-dir", h.dir)...).Output()
}
