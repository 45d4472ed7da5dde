package cpus

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// cpus is a CPU side on which each vCPU has waited as long as it ran.
type cpus struct {
	mu     sync.Mutex
	asked  []hypervisor.Guests // at the last sample
	looks  int
	closed bool
	ran    time.Duration
}

func (c *cpus) Weights(of []hypervisor.Guests) []hypervisor.Weight {
	return make([]hypervisor.Weight, len(of))
}

func (c *cpus) Look(_ vcpu.Time, _ time.Duration, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.closed = of, false
	c.looks++
	return make([]vcpu.Schedule, len(of)), vcpu.Shadow
}

func (c *cpus) Spent(of []hypervisor.Guests) []hypervisor.Spent {
	all := make([]hypervisor.Spent, len(of))
	for i := range of {
		all[i] = hypervisor.Spent{VCPUs: len(of[i].VCPUs), Ran: c.ran, Waited: c.ran}
	}
	return all
}

func (c *cpus) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *cpus) is(ok func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok()
}

// domains is a table of domains on one accelerator, which is always contended.
type domains struct {
	mu       sync.Mutex
	settings configs.Accelerator
	guests   []hypervisor.Guests
	samples  int
}

func (d *domains) Settings() configs.Accelerator {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings
}

func (d *domains) Contended() bool { return true }

func (d *domains) Observe(*vcpu.Sample) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.samples++
}

// sampled returns the number of samples that the policy received.
func (d *domains) sampled() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.samples
}

func (d *domains) Accelerators() []Accelerator { return []Accelerator{d} }

func (d *domains) Guests() []hypervisor.Guests {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guests
}

func (d *domains) Machines() []hypervisor.Guests { return d.Guests() }

func (d *domains) Attached(use func(func(string) (Accelerator, vcpu.ID))) {
	use(func(string) (Accelerator, vcpu.ID) { return d, 1 })
}

func (d *domains) SetWeight(string, hypervisor.Weight) {}

// set changes the domains with guests and the policy.
func (d *domains) set(policy string, guests ...hypervisor.Guests) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settings = configs.Default().Accelerators[0]
	d.settings.Policy, d.guests = policy, guests
}

func guestsOf(domain string, vcpus ...int) hypervisor.Guests {
	return hypervisor.Guests{Domain: domain, VM: true, VCPUs: vcpus}
}

// The schedule is sampled as long as a policy uses it; then the sampler's resources are released.
func TestLooksWhileFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cpus{}, &domains{}
		d.set("cosched", guestsOf("one", 8), guestsOf("two", 18))
		ctx, cancel := context.WithCancel(t.Context())
		s := NewSampler(c, d, virtual)
		go s.Run(ctx)
		time.Sleep(checkEvery)
		if !c.is(func() bool { return len(c.asked) == 2 && c.asked[1].VCPUs[0] == 18 && !c.closed }) {
			t.Errorf("both are seen as %+v", c.asked)
		}
		if got, want := d.sampled(), int(checkEvery/d.Settings().Tick); got < want || got > want+2 {
			t.Errorf("%d samples in %v, want about %d", got, checkEvery, want)
		}
		d.set("cosched", guestsOf("one", 8))
		time.Sleep(checkEvery)
		if !c.is(func() bool { return len(c.asked) == 1 }) {
			t.Errorf("one is off: %+v", c.asked)
		}
		d.set("xc")
		time.Sleep(checkEvery)
		if !c.is(func() bool { return c.closed }) {
			t.Error("no policy follows, and the sampler keeps its resources")
		}
		cancel()
		synctest.Wait()
	})
}

// Steal time of a machine's vCPUs is reported as in its guest, and restarts with the machine.
func TestSteal(t *testing.T) {
	c, d := &cpus{}, &domains{}
	now := int64(time.Hour)
	s := NewSampler(c, d, func() int64 { return now })
	d.set("accc", guestsOf("vm", 8, 9))
	s.measureSteal()
	if _, part := s.Steal("vm"); part != 0 {
		t.Errorf("at first: %v", part)
	}
	now += int64(20 * time.Millisecond)
	c.ran = 10 * time.Millisecond // of two vCPUs, in 20 ms
	s.measureSteal()
	if spent, part := s.Steal("vm"); part != 0.25 || spent.VCPUs != 2 || spent.Waited != c.ran {
		t.Errorf("%v of %+v, want 0.25", part, spent)
	}
	if spent, _ := s.Steal("plain"); spent.VCPUs != 0 {
		t.Errorf("of processes: %+v", spent)
	}
	c.ran = time.Millisecond
	s.measureSteal()
	if _, part := s.Steal("vm"); part != 0 {
		t.Errorf("after a reboot: %v", part)
	}
	d.set("accc")
	s.measureSteal()
	if spent, _ := s.Steal("vm"); spent.VCPUs != 0 {
		t.Errorf("of one that is off: %+v", spent)
	}
}

// A sample before a decision does not wait for another reader of the CPU side.
func TestGlanceDoesNotWait(t *testing.T) {
	c, d := &cpus{}, &domains{}
	d.set("cosched", guestsOf("one", 8))
	s := NewSampler(c, d, virtual)
	s.samplerMu.Lock()
	if s.Sample(30 * time.Millisecond) {
		t.Error("it samples while another goroutine does")
	}
	s.samplerMu.Unlock()
	if !s.Sample(30*time.Millisecond) || c.looks != 1 || d.sampled() != 1 {
		t.Errorf("it samples %d times, and the policy receives %d samples", c.looks, d.sampled())
	}
}

// virtual is the clock of tests with virtual time.
func virtual() int64 { return time.Now().UnixNano() }
