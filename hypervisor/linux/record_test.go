//go:build soak

package linux

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux/switches"
	"pegasus/vcpu"
)

// TestSoakRecord records the activity of machines under different loads, period by period, from the kernel's records
// and from schedstat, to the folder PEGASUS_RECORD. It wrote hypervisor/testdata. The figures it prints are those of
// docs/results.
func TestSoakRecord(t *testing.T) {
	dir := os.Getenv("PEGASUS_RECORD")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, s := range []struct {
		name string
		all  []machine
	}{
		{"weights", []machine{{Name: "a", VCPUs: 1, CPUs: []int{1}, Weight: 256}, {Name: "b", VCPUs: 1, CPUs: []int{1}, Weight: 512},
			{Name: "c", VCPUs: 1, CPUs: []int{1}, Weight: 1024}}},
		{"two", []machine{{Name: "a", VCPUs: 1, CPUs: []int{1}, Weight: 256}, {Name: "b", VCPUs: 1, CPUs: []int{1}, Weight: 768}}},
		{"rests", []machine{{Name: "a", VCPUs: 1, CPUs: []int{1}, Weight: 256}, {Name: "b", VCPUs: 1, CPUs: []int{1}, Weight: 512, Run: 5 * ms, Rest: 10 * ms},
			{Name: "c", VCPUs: 1, CPUs: []int{1}, Weight: 512, Run: 20 * ms, Rest: 40 * ms}}},
		{"bursts", []machine{{Name: "a", VCPUs: 1, CPUs: []int{1}, Weight: 256}, {Name: "b", VCPUs: 1, CPUs: []int{1}, Weight: 256, Run: 2 * ms, Rest: 80 * ms},
			{Name: "c", VCPUs: 1, CPUs: []int{1}, Weight: 256, Run: 100 * ms, Rest: 200 * ms}}},
		{"floating", []machine{{Name: "a", VCPUs: 1, Weight: 256}, {Name: "b", VCPUs: 1, Weight: 512}, {Name: "c", VCPUs: 1, Weight: 512}}},
		{"pairs", []machine{{Name: "a", VCPUs: 2, CPUs: []int{0, 1}, Weight: 256}, {Name: "b", VCPUs: 2, CPUs: []int{0, 1}, Weight: 768}}},
		{"mixed", []machine{{Name: "a", VCPUs: 1, CPUs: []int{1}, Weight: 256}, {Name: "b", VCPUs: 1, Weight: 256},
			{Name: "c", VCPUs: 1, Weight: 256, Run: 15 * ms, Rest: 15 * ms}}},
		{"quota", []machine{{Name: "a", VCPUs: 1, CPUs: []int{1}, Weight: 256}, {Name: "b", VCPUs: 1, CPUs: []int{1}, Weight: 768, Quota: 40}}},
	} {
		t.Run(s.name, func(t *testing.T) {
			for i := range s.all {
				s.all[i].start(t)
			}
			record(t, filepath.Join(dir, s.name+".txt"), s.all)
		})
	}
	t.Run("qemu", func(t *testing.T) {
		all := []machine{{Name: "a", CPUs: []int{1}, Weight: 256}, {Name: "b", CPUs: []int{1}, Weight: 768}, {Name: "c", CPUs: []int{1}, Weight: 256}}
		all[0].boot(t, spins)
		all[1].boot(t, spins)
		all[2].boot(t, halts)
		record(t, filepath.Join(dir, "qemu.txt"), all)
	})
}

// A line begins a period, or describes a vCPU: its machine, number, weight within the machine's credits, quota and
// CPUs; then state, CPU, time run and waited in µs, from the kernel's records and from schedstat.
func record(t *testing.T, path string, all []machine) {
	const periods, period = 150, 30 * ms
	var of []hypervisor.Guests
	for i := range all {
		of = append(of, all[i].guests())
	}
	noted, read := NewCPUs(discard, switches.Load), NewCPUs(discard, nil)
	defer noted.Close()
	defer read.Close()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	defer w.Flush()
	start := time.Now()
	var last vcpu.Time
	for i := range periods + 10 {
		time.Sleep(time.Until(start.Add(time.Duration(i) * period)))
		now := vcpu.Time(time.Since(start)) + 1
		schedules, _ := noted.Look(now, period, of)
		read.Look(now, period, of)
		if noted.table == nil {
			t.Fatal("the kernel notes nothing here: the recording needs BPF")
		}
		if i >= 10 { // the machines have reached a steady state
			fmt.Fprintf(w, "period %d\n", now.Sub(last)/time.Microsecond)
			for n := range all {
				a, b := noted.processes[all[n].pid].threads, read.processes[all[n].pid].threads
				for k, u := range a {
					fmt.Fprintf(w, "%s %d %d %d %x", all[n].Name, u.vcpu.ID, schedules[n].Weight, schedules[n].Cap, u.account.CPUs[0])
					for _, u := range []*thread{u, b[k]} {
						fmt.Fprintf(w, "  %d %d %d %d", u.vcpu.State, u.vcpu.PCPU, u.done.ran/time.Microsecond, u.done.waited/time.Microsecond)
					}
					fmt.Fprintln(w)
				}
			}
		}
		last = now
	}
}

// TestSoakCost prints the cost of sampling 64 vCPUs that are active between any two looks, every 30 ms, in processor
// time of the sampling thread; and limits it to half a percent of a core.
func TestSoakCost(t *testing.T) {
	m := machine{Name: "m", VCPUs: 64, Run: 200 * time.Microsecond, Rest: 25 * ms}
	m.start(t)
	of := []hypervisor.Guests{m.guests()}
	for name, load := range map[string]func() (*switches.Table, error){"noted": switches.Load, "read": nil} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			c := NewCPUs(discard, load)
			defer c.Close()
			start := time.Now()
			var spent time.Duration
			const looks = 200
			for i := range looks + 10 {
				time.Sleep(time.Until(start.Add(time.Duration(i) * 30 * ms)))
				before := threadTime()
				all, _ := c.Look(vcpu.Time(time.Since(start))+1, 30*ms, of)
				if len(all[0].VCPUs) != 64 {
					t.Fatalf("%d vCPUs", len(all[0].VCPUs))
				}
				if i >= 10 {
					spent += threadTime() - before
				}
			}
			active := 0
			for _, u := range c.processes[m.pid].threads {
				if u.done.ran > 0 {
					active++
				}
			}
			percent := 100 * spent.Seconds() / (looks * 30 * ms).Seconds()
			t.Logf("a look at 64 vCPUs, of which %d did something: %v, which every 30 ms is %.2f %% of a core", active, spent/looks, percent)
			if percent > 0.5 && c.table != nil { // without the kernel's records the cost is that of /proc
				t.Errorf("looking takes %.2f %% of a core", percent)
			}
		})
	}
}

func threadTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return time.Duration(now.Nano())
}
