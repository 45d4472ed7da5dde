package cpus

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

const (
	ms     = time.Millisecond
	period = 30 * ms
)

// pass advances the time, in which vCPUs run according to their states.
func (f *fake) pass(d time.Duration) {
	f.now = f.now.Add(d)
	for _, all := range f.vcpus {
		for i := range all {
			if all[i].Running {
				all[i].CPUTime += d
			}
		}
	}
}

// runs, waits and rests set states of vCPUs.
func (f *fake) runs(id uint16, n, cpu int) {
	v := &f.vcpus[id][n]
	v.Running, v.Blocked, v.CPU = true, false, cpu
}
func (f *fake) waits(id uint16, n, cpu int) {
	v := &f.vcpus[id][n]
	v.Running, v.Blocked, v.CPU = false, false, cpu
}
func (f *fake) rests(id uint16, n int) {
	v := &f.vcpus[id][n]
	v.Running, v.Blocked = false, true
}

func (f *fake) look(c *CPUs, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	return c.Look(vcpu.Time(f.now.UnixNano()), period, of)
}

// The states and predictions of vCPUs follow the hypervisor's reports: of running, waiting and resting ones, of a
// paused domain, and of a missing one.
func TestLook(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0, 1)
	f.domain(0, 0, 256, 1)
	f.domain(1, 0, 512, 2)
	f.domain(2, 0, 256, 1)
	f.domain(3, 0, 256, 1)
	f.params[2] = control.Params{Weight: 256, Cap: 50}
	f.vcpus[3][0].Blocked = false
	f.domains[3].Flags = control.DomainPaused
	c, of := f.cpus(), guests(1, 2, 3, 9)
	f.runs(1, 0, 1)
	f.waits(2, 0, 1)
	var seen []vcpu.Schedule
	var quality vcpu.Quality
	for range 20 {
		seen, quality = f.look(c, of)
		f.pass(period)
	}
	if quality != vcpu.Shadow || len(seen) != 4 || len(seen[0].VCPUs) != 2 || len(seen[3].VCPUs) != 0 {
		t.Fatalf("%v: %+v", quality, seen)
	}
	if s := seen[0]; s.Weight != 512 || s.Cap != 0 || s.VCPUs[0] != (vcpu.VCPU{PCPU: 1, State: vcpu.Running, Next: s.VCPUs[0].Next}) || s.VCPUs[0].Next < 500 || s.VCPUs[1].State != vcpu.Blocked || s.VCPUs[1].Next != 0 || s.VCPUs[1].ID != 1 {
		t.Errorf("%+v", s)
	}
	if s := seen[1]; s.Weight != 256 || s.Cap != 50 || s.VCPUs[0].State != vcpu.Runnable || s.VCPUs[0].PCPU != 1 {
		t.Errorf("%+v", s)
	}
	if s := seen[2]; s.VCPUs[0].State != vcpu.Blocked {
		t.Errorf("of a domain that is paused: %+v", s)
	}
	f.remove(1)
	if seen, _ = f.look(c, of); len(seen[0].VCPUs) != 0 || len(seen[1].VCPUs) != 1 || c.vcpus != 3 {
		t.Errorf("of a domain that has ended: %+v, of %d vCPUs", seen[0], c.vcpus)
	}
	f.broken = errors.New("no answer")
	if seen, quality = f.look(c, of); quality != vcpu.Unknown || len(seen) != 4 || len(seen[1].VCPUs) != 0 {
		t.Errorf("of a hypervisor that doesn't answer: %v, %+v", quality, seen)
	}
	if w := c.Weights(of); len(w) != 4 || w[1] != (hypervisor.Weight{}) {
		t.Errorf("%+v", w)
	}
	f.broken = nil
	if _, quality = f.look(c, of); quality != vcpu.Shadow {
		t.Error("it isn't seen again")
	}
	if calls := f.calls; c.Weights(of)[1] != (hypervisor.Weight{Credits: 256, Cap: 50}) || f.calls-calls > 4 {
		t.Errorf("%+v, by %d calls", c.Weights(of), f.calls-calls)
	}
}

// Waiting vCPUs gain credit, and running ones lose it, by weight; vCPUs in another pool have no part in it.
func TestCredit(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.pool(control.Credit, 1)
	f.domain(0, 0, 256, 1)
	f.domain(1, 1, 256, 1)
	f.domain(2, 1, 768, 1)
	f.runs(0, 0, 0)
	f.waits(1, 0, 1)
	f.runs(2, 0, 1)
	c, of := f.cpus(), guests(1, 2)
	f.look(c, of)
	f.pass(period)
	seen, _ := f.look(c, of)
	// The light one has earned a quarter of 300 credits, the other one three, and burnt all. Half of the earnings
	// isn't handed out yet.
	if seen[0].Remaining != 37 || seen[1].Remaining != -187 {
		t.Errorf("%d and %d are left", seen[0].Remaining, seen[1].Remaining)
	}
	// If the other one still runs on, the hypervisor's accounts differ.
	for range 9 {
		f.pass(period)
		seen, _ = f.look(c, of)
	}
	if seen[0].Remaining != 0 || seen[1].Remaining < -300-112 || seen[1].Remaining > -112 {
		t.Errorf("%d and %d are left", seen[0].Remaining, seen[1].Remaining)
	}
	c.Close()
	f.pass(time.Minute) // without samples
	before := c.domains[2].vcpus[0].account.Credit
	f.look(c, of)
	if after := c.domains[2].vcpus[0].account.Credit; after != before {
		t.Errorf("a pause made %v of %v", after, before)
	}
	f.pools[1].Scheduler = control.Credit2 // created anew
	f.domains[1].Pool, f.domains[2].Pool = 1, 1
	for range 2 * readEvery {
		f.pass(ms)
		seen, _ = f.look(c, of)
	}
	if len(seen[1].VCPUs) != 1 || seen[1].Weight != 768 {
		t.Errorf("in a pool that was made anew: %+v", seen[1])
	}
}

// Under Credit2 the vCPU with most credit is next, the light one burns faster, and all are reset when none has any.
func TestCredit2(t *testing.T) {
	f := newFake()
	f.pool(control.Credit2, 0)
	f.domain(0, 0, 256, 1)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 512, 1)
	c, of := f.cpus(), guests(1, 2)
	ran := map[uint16]int{}
	f.waits(1, 0, 0)
	f.waits(2, 0, 0)
	for range 1000 {
		seen, _ := f.look(c, of)
		next := uint16(1)
		if seen[1].Remaining > seen[0].Remaining {
			next = 2
		}
		f.waits(3-next, 0, 0)
		f.runs(next, 0, 0)
		f.pass(2 * ms)
		ran[next]++
		for i, s := range seen {
			if s.Remaining > 105 || s.Remaining < -40 {
				t.Fatalf("d%d has %d left", i+1, s.Remaining)
			}
		}
	}
	if part := float64(ran[2]) / 1000; math.Abs(part-2./3) > 0.02 {
		t.Errorf("played by that, the heavy one gets %.2f", part)
	}
}

// The vCPU that waits for the CPU of the calling one would run without the call.
func TestAskerGivesWay(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0, 1)
	f.domain(0, 0, 256, 2)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	f.domain(3, 0, 256, 1)
	f.runs(0, 0, 0)
	f.runs(0, 1, 1)
	f.waits(1, 0, 1)
	f.waits(2, 0, 1)
	f.waits(3, 0, 0)
	c, of := f.cpus(), guests(1, 2, 3)
	c.mine = func() int { return 1 }
	f.look(c, of)
	c.domains[2].vcpus[0].account.Credit = ms
	seen, _ := f.look(c, of)
	states := []vcpu.VCPUState{seen[0].VCPUs[0].State, seen[1].VCPUs[0].State, seen[2].VCPUs[0].State}
	if !slices.Equal(states, []vcpu.VCPUState{vcpu.Runnable, vcpu.Running, vcpu.Runnable}) {
		t.Errorf("%v", states)
	}
	if n := thisCPU(); n < 0 {
		t.Errorf("this runs on CPU %d", n)
	}
}

// Running times are exact, waiting times estimated from samples.
func TestSpent(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(0, 0, 256, 1)
	f.domain(1, 0, 256, 2)
	f.domain(2, 0, 256, 1)
	c, of := f.cpus(), guests(1, 2, 7)
	f.vcpus[1][0].CPUTime = time.Hour
	f.runs(1, 0, 0)
	c.Spent(of)
	for i := range 100 {
		f.waits(1, 0, 0)
		f.runs(2, 0, 0)
		if i%2 == 0 {
			f.runs(1, 0, 0)
			f.waits(2, 0, 0)
		}
		f.pass(10 * ms)
		c.Spent(of)
	}
	s := c.Spent(of)
	if s[0].VCPUs != 2 || s[0].Ran != time.Hour+500*ms || s[0].Waited < 450*ms || s[0].Waited > 550*ms {
		t.Errorf("%+v", s[0])
	}
	if s[1].VCPUs != 1 || s[1].Ran != 500*ms || s[1].Waited < 450*ms || s[1].Waited > 550*ms {
		t.Errorf("%+v", s[1])
	}
	if s[2] != (hypervisor.Spent{}) {
		t.Errorf("of a domain that there isn't: %+v", s[2])
	}
	f.rests(1, 0)
	f.rests(2, 0)
	c.Spent(of)
	before := c.Spent(of)[0].Waited
	f.pass(time.Second)
	if after := c.Spent(of)[0].Waited; after != before {
		t.Errorf("resting, it waited %v", after-before)
	}
}

// The totals of a domain's vCPUs stay when some are unplugged, and aren't counted twice when they are back.
func TestSpentUnplugged(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 2)
	f.vcpus[1][1].CPUTime = time.Hour
	c, of := f.cpus(), guests(1)
	f.runs(1, 0, 0)
	f.waits(1, 1, 0)
	c.Spent(of)
	f.pass(100 * ms)
	before := c.Spent(of)[0]
	f.vcpus[1][1].Online = false
	for range 2 * maxVCPUs {
		f.pass(ms)
		c.Spent(of)
	}
	less := c.Spent(of)[0]
	if less.VCPUs != 1 || less.Ran != before.Ran+2*maxVCPUs*ms || less.Waited != before.Waited || before.Waited == 0 || c.vcpus != 1 {
		t.Errorf("of %+v it is %+v", before, less)
	}
	f.vcpus[1][1].Online = true
	if again := c.Spent(of)[0]; again.VCPUs != 2 || again.Ran != less.Ran || again.Waited != less.Waited {
		t.Errorf("of %+v it is %+v", less, again)
	}
}

// More vCPUs than the bound do no harm.
func TestManyVCPUs(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(0, 0, 256, 8)
	f.domain(1, 0, 256, maxVCPUs)
	f.domain(2, 0, 256, 3)
	c, of := f.cpus(), guests(1, 2)
	for range 3 {
		seen, _ := f.look(c, of)
		if c.vcpus != maxVCPUs || len(seen[0].VCPUs) != maxVCPUs-8 || len(seen[1].VCPUs) != 0 {
			t.Fatalf("%d, %d and %d of them", c.vcpus, len(seen[0].VCPUs), len(seen[1].VCPUs))
		}
		f.pass(period)
	}
}

// BenchmarkLook measures a look without the hypercalls, of which there are one for each vCPU and one more.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFake()
			f.pool(control.Credit, 0, 1, 2, 3)
			f.domain(0, 0, 256, 1)
			var ids []uint16
			for i := 1; i < n; i++ {
				f.domain(uint16(i), 0, 256, 1)
				f.waits(uint16(i), 0, i%4)
				ids = append(ids, uint16(i))
			}
			c, of := f.cpus(), guests(ids...)
			for b.Loop() {
				f.pass(period)
				f.look(c, of)
			}
		})
	}
}

// A vCPU that the hypervisor doesn't report for a while isn't added again each time.
func TestMuteVCPU(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 4)
	c, of := f.cpus(), guests(1)
	f.look(c, of)
	f.mute = map[uint32]error{2: errors.New("not now")}
	for range maxVCPUs {
		f.pass(ms)
		if _, quality := f.look(c, of); quality != vcpu.Unknown {
			t.Fatal("it is known what one does of which nobody tells")
		}
	}
	f.mute = nil
	if seen, _ := f.look(c, of); len(seen[0].VCPUs) != 4 || c.vcpus != 4 {
		t.Errorf("%d vCPUs are seen, of %d", len(seen[0].VCPUs), c.vcpus)
	}
}

// A pool with a scheduler without weights doesn't affect the others.
func TestOtherSchedulers(t *testing.T) {
	const null = control.Scheduler(9)
	f := newFake()
	f.pool(control.Credit, 0)
	f.pool(null, 1)
	f.domain(0, 0, 256, 1)
	f.domain(1, 0, 512, 1)
	f.domain(2, 1, 0, 1)
	f.runs(2, 0, 1)
	c, of := f.cpus(), guests(1, 2)
	for range 3 {
		seen, quality := f.look(c, of)
		if quality != vcpu.Shadow || seen[0].Weight != 512 || len(seen[0].VCPUs) != 1 || seen[1].Weight != 0 || len(seen[1].VCPUs) != 1 || seen[1].VCPUs[0].State != vcpu.Running {
			t.Fatalf("%v: %+v", quality, seen)
		}
		f.pass(period)
	}
	tuner := c.Tuner(func(string) (uint16, bool) { return 2, true })
	weight, percent, slice := 300, 50, 5*ms
	for _, set := range []hypervisor.Tuning{{Weight: &weight}, {Cap: &percent}, {Slice: &slice}} {
		if err := tuner.Tune("two", set); err == nil || !strings.Contains(err.Error(), "null") || !strings.Contains(err.Error(), "CPU pool 1") {
			t.Errorf("%+v: %v", set, err)
		}
	}
	if groups := c.Raiser(t.TempDir()).Groups(of); len(groups) != 1 || groups[0].Weight != 512 {
		t.Errorf("%+v", groups)
	}
}
