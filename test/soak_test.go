//go:build soak

package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// soakTime returns the duration of each test that repeats without a fixed number of rounds.
func soakTime(t *testing.T) time.Duration {
	if s := os.Getenv("SOAKTIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("SOAKTIME: %v", err)
		}
		return d
	}
	return 10 * time.Minute
}

func TestSoakOrder(t *testing.T) {
	h := startHost(t, oneDomain)
	t.Logf("%s", succeed(t, h.guest("one", program(t, "order"), "1000000")))
}

// resources is the sum of the daemon's and its workers' resources.
type resources struct{ rss, private, fds, segments int }

func (u resources) String() string {
	return fmt.Sprintf("%d KiB resident (%d KiB of it private), %d descriptors, %d segments", u.rss/1024, u.private/1024, u.fds, u.segments)
}

// held returns the sum over the process and its children.
func held(t *testing.T, daemon int) (u resources) {
	t.Helper()
	pids := []int{daemon}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		text, err := os.ReadFile(s)
		if err != nil {
			continue
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if f[1] == strconv.Itoa(daemon) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/", pid)
		if text, err := os.ReadFile(dir + "statm"); err == nil {
			f := strings.Fields(string(text))
			pages, _ := strconv.Atoi(f[1])
			shared, _ := strconv.Atoi(f[2])
			u.rss += pages * os.Getpagesize()
			u.private += (pages - shared) * os.Getpagesize()
		}
		fds, _ := os.ReadDir(dir + "fd")
		u.fds += len(fds)
		for _, fd := range fds {
			if to, err := os.Readlink(dir + "fd/" + fd.Name()); err == nil && strings.Contains(to, "pegasus-segment") {
				u.segments++
			}
		}
	}
	return u
}

// Sixteen processes of four threads run for a long time; there are no errors, hangs or leaks.
func TestSoakManyThreads(t *testing.T) {
	h := startHost(t, oneDomain)
	total := soakTime(t)
	warm := min(2*time.Minute, total/5)
	done := make(chan struct{})
	go func() {
		defer close(done)
		manyThreads(t, h, 16, fmt.Sprint(total.Seconds()))
	}()
	time.Sleep(warm)
	// Garbage collection varies the memory, so the tenth of the time after the warm-up is compared with the last tenth.
	var all []resources
	for tick := time.NewTicker(total / 200); ; {
		select {
		case <-done:
			n := len(all) / 8
			first, half, last := middle(all[:n]), middle(all[len(all)/2:len(all)/2+n]), middle(all[len(all)-n:])
			t.Logf("from %v after %v over %v to %v; single looks: %v, %v", first, warm, half, last, all[0], all[len(all)-1])
			if last.rss > first.rss*101/100 || last.private > first.private*101/100 || last.fds > first.fds*101/100 || last.segments > first.segments {
				t.Error("it grew")
			}
			return
		case <-tick.C:
			if u := held(t, h.daemon.Process.Pid); u.segments == 16 { // else some have not started, or have ended
				all = append(all, u)
			}
		}
	}
}

// middle returns the median of each figure.
func middle(all []resources) (m resources) {
	of := func(figure func(resources) int) int {
		var v []int
		for _, u := range all {
			v = append(v, figure(u))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return resources{
		rss:      of(func(u resources) int { return u.rss }),
		private:  of(func(u resources) int { return u.private }),
		fds:      of(func(u resources) int { return u.fds }),
		segments: of(func(u resources) int { return u.segments }),
	}
}

func TestSoakSwitching(t *testing.T) { switching(t, soakTime(t)) }

// The share tests at their full length, repeatedly.
func TestSoakShares(t *testing.T) {
	for end := time.Now().Add(soakTime(t)); time.Now().Before(end); {
		t.Run("shares", TestShares)
		t.Run("set", TestSetCredits)
	}
}

// On a host with processors that are busy with other work for 30 % of the time, in bursts as under a hypervisor,
// domains have their shares all the same.
func TestSoakSharesOnBusyHost(t *testing.T) {
	var stop atomic.Bool
	var thieves sync.WaitGroup
	for cpu := range runtime.NumCPU() {
		thieves.Go(func() {
			if err := steal(cpu, .3, 3*time.Millisecond, &stop); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop.Store(true)
		thieves.Wait()
	})
	t.Run("shares", TestShares)
	t.Run("set", TestSetCredits)
	t.Run("idle", TestIdleTimeGoesToTheOthers)
}

// As TestBusyHost for minutes.
func TestSoakBusyHost(t *testing.T) { busyHost(t, soakTime(t)/8) }

// steal uses a part of a processor's time, in bursts of this mean length, and so keeps it from all other processes.
func steal(cpu int, part float64, burst time.Duration, stop *atomic.Bool) error {
	runtime.LockOSThread() // and never unlocked: the thread must not be reused
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("processor %d: %w", cpu, err)
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 1 /* SCHED_FIFO */, Priority: 50}, 0); err != nil {
		return fmt.Errorf("real-time priority, to take processor time away: %w", err)
	}
	r := rand.New(rand.NewPCG(1, uint64(cpu)))
	for !stop.Load() {
		for end := time.Now().Add(time.Duration(r.ExpFloat64() * float64(burst))); time.Now().Before(end); {
		}
		gap := unix.NsecToTimespec(int64(r.ExpFloat64() * float64(burst) * (1 - part) / part))
		unix.Nanosleep(&gap, nil)
	}
	return nil
}
