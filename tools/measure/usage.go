package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// machine reports the other load when the measurements began.
func machine(ctx context.Context, _ io.Writer) ([]Figure, error) {
	before, err := idleTime()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	select {
	case <-time.After(500 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := idleTime()
	if err != nil {
		return nil, err
	}
	return []Figure{
		{Name: "processors", Value: float64(runtime.NumCPU()), Unit: "count"},
		{Name: "processors idle at the start", Value: (after - before).Seconds() / time.Since(start).Seconds(), Unit: "count"},
	}, nil
}

// idleTime returns the total idle time of the processors since the machine started.
func idleTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(text)) // cpu user nice system idle, in hundredths of seconds
	if len(words) < 5 {
		return 0, fmt.Errorf("/proc/stat: %q", words)
	}
	ticks, err := strconv.ParseInt(words[4], 10, 64)
	return time.Duration(ticks) * 10 * time.Millisecond, err
}

const (
	idleBefore = 1 * time.Second // limit for start and first calls
	idleFor    = 3 * time.Second
)

// idle measures the processor time of an idle guest, with its worker and the daemon.
func idle(ctx context.Context, stderr io.Writer) ([]Figure, error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	defer h.close()
	seconds := (idleBefore + idleFor + time.Second) / time.Second
	guest := h.guest(ctx, stderr, nil, built("bench/calls"), "--idle", fmt.Sprint(int(seconds)))
	if err := guest.Start(); err != nil {
		return nil, err
	}
	defer guest.Wait()
	time.Sleep(idleBefore)
	all := append(h.processes(), guest.Process.Pid)
	before := cpuTime(all)
	time.Sleep(idleFor)
	used := cpuTime(all) - before
	return []Figure{
		{Name: "idle guest, worker and daemon: processes", Value: float64(len(all)), Unit: "count"},
		{Name: "idle guest, worker and daemon", Value: used.Seconds() / idleFor.Seconds() * 100, Unit: "% of a core"},
	}, nil
}

// processes returns the daemon of the house and its workers.
func (h *house) processes() (all []int) {
	parents := map[int]int{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		stat, err := os.ReadFile(name + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		if words := bytes.Fields(rest); len(words) > 1 && string(words[0]) != "Z" {
			parents[pid], _ = strconv.Atoi(string(words[1]))
		}
		line, _ := os.ReadFile(name + "/cmdline")
		if words := strings.Split(string(line), "\x00"); strings.HasSuffix(words[0], "pegasusd") && slices.Contains(words, h.dir) {
			all = append(all, pid)
		}
	}
	for i := 0; i < len(all); i++ {
		for pid, parent := range parents {
			if parent == all[i] && !slices.Contains(all, pid) {
				all = append(all, pid)
			}
		}
	}
	return all
}

// cpuTime returns the run time of the threads of processes.
func cpuTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, name := range names {
			text, _ := os.ReadFile(name)
			if words := strings.Fields(string(text)); len(words) > 0 {
				ns, _ := strconv.ParseInt(words[0], 10, 64)
				sum += time.Duration(ns)
			}
		}
	}
	return sum
}
