package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/hypervisor"
)

// threadsOf returns Threads with queries that a function answers, and the logged lines.
func threadsOf(query func(ctx context.Context, machine string) error) (t *Threads, lines func() []string) {
	var mu sync.Mutex
	var all []string
	t = &Threads{
		Changed: func() {},
		Log:     func(line string) { mu.Lock(); defer mu.Unlock(); all = append(all, line) },
		Query: func(ctx context.Context, machine string) (int, []int, error) {
			if err := query(ctx, machine); err != nil {
				return 0, nil, err
			}
			return 70, []int{71}, nil
		},
	}
	return t, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
}

// A QEMU that doesn't answer gets one query at a time, at growing intervals, and one log line; its recovery is
// logged, too.
func TestSilentQEMU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queries, inFlight, most int
		var silent = true
		var mu sync.Mutex
		threads, lines := threadsOf(func(ctx context.Context, _ string) error {
			mu.Lock()
			queries++
			inFlight++
			most = max(most, inFlight)
			wait := silent
			mu.Unlock()
			defer func() { mu.Lock(); inFlight--; mu.Unlock() }()
			if wait {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		run := MachineRun{Name: "web", ID: 1, VCPUs: 1, State: hypervisor.MachineRunning}
		look := func(d time.Duration) (pid int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				run.State = hypervisor.MachineRunning
				if time.Now().Second()%7 == 0 { // libvirt reports changes: they cause no additional queries
					run.State = hypervisor.MachinePaused
				}
				pid, _ = threads.Of(run)
				threads.Forget([]Machine{{Name: "web", State: run.State}})
			}
			return pid
		}
		run.VCPUs = 2
		look(time.Minute)
		mu.Lock()
		if queries > 12 || most != 1 {
			t.Errorf("%d queries in a minute, %d at once", queries, most)
		}
		mu.Unlock()
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "web: QEMU hasn't answered within 5s; querying again in 3s") {
			t.Errorf("logged: %q", got)
		}
		mu.Lock()
		queries, silent = 0, false
		mu.Unlock()
		if pid := look(2 * time.Minute); pid != 70 {
			t.Errorf("process %d", pid)
		}
		if got := lines(); len(got) != 2 || !strings.Contains(got[1], "web: QEMU answers again") {
			t.Errorf("logged: %q", got)
		}
	})
}

// Pauses between failed queries grow to a minute, and start anew with another emulator.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		threads, lines := threadsOf(func(context.Context, string) error {
			at = append(at, time.Since(start))
			return errors.New("no")
		})
		run := MachineRun{Name: "web", ID: 1}
		for range 150 {
			threads.Of(run)
			time.Sleep(time.Second)
		}
		want := []time.Duration{0, 3 * time.Second, 9 * time.Second, 21 * time.Second, 45 * time.Second, 93 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("queried after %v, want %v", at, want)
		}
		run.ID = 2
		threads.Of(run)
		synctest.Wait()
		if len(at) != len(want)+1 || len(lines()) != 2 {
			t.Errorf("another emulator: queried after %v, logged %q", at, lines())
		}
	})
}

// Many QEMUs that don't answer don't occupy all of libvirtd's threads, and don't delay the query of a healthy one for
// long.
func TestManySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var inFlight, most int
		threads, _ := threadsOf(func(ctx context.Context, machine string) error {
			if machine == "healthy" {
				return nil
			}
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			defer func() { mu.Lock(); inFlight--; mu.Unlock() }()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		pid := 0
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(3 * time.Second) {
			for i := range 40 {
				threads.Of(MachineRun{Name: fmt.Sprintf("m%d", i), ID: uint(i)})
			}
			pid, _ = threads.Of(MachineRun{Name: "healthy", ID: 99})
			synctest.Wait()
		}
		if most > maxQueries || pid != 70 {
			t.Errorf("%d queries at once, process %d", most, pid)
		}
		time.Sleep(QueryTime)
	})
}
