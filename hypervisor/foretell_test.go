package hypervisor

import (
	"testing"
	"time"

	"pegasus/vcpu"
)

// The predictions of a vCPU, period after period, against its activity then.
func TestForetell(t *testing.T) {
	const w, r, s = vcpu.Runnable, vcpu.Running, vcpu.Blocked
	type period struct {
		states [2]vcpu.VCPUState // at its end
		cpus   [2]int
		ran    [2]int // in it, ms of 30
		next   [2]int // predicted at its end
	}
	for name, c := range map[string]struct {
		weights [2]int64
		most    [2]int
		periods []period
	}{
		"by weight": {[2]int64{256, 768}, [2]int{1000, 1000}, []period{
			{[2]vcpu.VCPUState{w, r}, [2]int{1, 1}, [2]int{}, [2]int{250, 750}}}},
		"each has a CPU": {[2]int64{256, 768}, [2]int{1000, 1000}, []period{
			{[2]vcpu.VCPUState{r, r}, [2]int{0, 1}, [2]int{}, [2]int{1000, 1000}}}},
		"nowhere yet": {[2]int64{256, 256}, [2]int{1000, 1000}, []period{
			{[2]vcpu.VCPUState{w, r}, [2]int{-1, 1}, [2]int{}, [2]int{1000, 1000}}}},
		// 20 ms of 100, which the vCPU may use at once, if it gets the CPU for half of the time; after 18 of them, 2
		// are left, until the 18 are longer ago.
		"a quota": {[2]int64{256, 256}, [2]int{1000, 200}, []period{
			{[2]vcpu.VCPUState{w, r}, [2]int{1, 1}, [2]int{}, [2]int{500, 500}},
			{[2]vcpu.VCPUState{w, r}, [2]int{1, 1}, [2]int{12, 18}, [2]int{908, 66}},
			{[2]vcpu.VCPUState{w, r}, [2]int{1, 1}, [2]int{28, 2}, [2]int{981, 0}},
			{[2]vcpu.VCPUState{w, r}, [2]int{1, 1}, [2]int{30, 0}, [2]int{585, 400}},
			{[2]vcpu.VCPUState{w, r}, [2]int{1, 1}, [2]int{30, 0}, [2]int{589, 410}}}},
		"sleeps, as it did": {[2]int64{256, 256}, [2]int{1000, 1000}, []period{
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{30, 0}, [2]int{1000, 0}},
			{[2]vcpu.VCPUState{r, vcpu.BlockedOnAccelerator}, [2]int{1, 1}, [2]int{30, 0}, [2]int{1000, 0}}}},
		// Its demand was 12 ms of 30, a quarter of which stays in its average, and the prediction was off by as much; the
		// other one lost them.
		"sleeps after it ran": {[2]int64{256, 256}, [2]int{1000, 1000}, []period{
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{30, 0}, [2]int{1000, 0}},
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{18, 12}, [2]int{800, 200}}}},
		// An unknown thread takes half of the CPU.
		"an outsider": {[2]int64{256, 256}, [2]int{1000, 1000}, []period{
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{15, 0}, [2]int{1000, 0}},
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{15, 0}, [2]int{875, 0}},
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{15, 0}, [2]int{781, 0}},
			{[2]vcpu.VCPUState{r, s}, [2]int{1, 1}, [2]int{15, 0}, [2]int{710, 0}}}},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*Account{{}, {}}
			for n, p := range c.periods {
				for i, a := range all {
					a.Weight, a.Most, a.CPUs = c.weights[i], c.most[i], FirstCPUs(2)
					a.Ran, a.State, a.CPU = time.Duration(p.ran[i])*ms, p.states[i], p.cpus[i]
					if a.Waited = 0; a.awake() && a.Most == 1000 { // it was awake all the time
						a.Waited = 30*ms - a.Ran
					}
				}
				Settle(all, 30*ms)
				Foretell(all, 30*ms)
				for i, a := range all {
					if a.Next != p.next[i] {
						t.Errorf("after period %d vCPU %d is foretold %d ‰, not %d", n, i, a.Next, p.next[i])
					}
				}
			}
		})
	}
}

// The predictions distinguish a vCPU that computes for 10 ms in every second period, alone, from one that always
// does.
func TestForetellsWhoRests(t *testing.T) {
	a := &Account{Weight: 256, Most: 1000, CPUs: FirstCPUs(1)}
	for n := range 60 {
		a.Ran, a.State = 0, vcpu.Running // found as it begins
		if n%2 == 1 {
			a.Ran, a.State = 10*ms, vcpu.Blocked
		}
		Settle([]*Account{a}, 30*ms)
		Foretell([]*Account{a}, 30*ms)
		if want := []int{333, 0}[n%2]; n >= 40 && (a.Next < want-20 || a.Next > want+20) {
			t.Errorf("after period %d it is foretold %d ‰, not about %d", n, a.Next, want)
		}
	}
}
