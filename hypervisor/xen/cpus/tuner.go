package cpus

import (
	"fmt"
	"math"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
)

// Tuner sets domUs' parts of the CPUs, in the scheduler of their pool. It implements hypervisor.Tuner.
type Tuner struct {
	cpus *CPUs
	id   func(name string) (uint16, bool)
}

// Tuner returns the Tuner of the domUs with the numbers that id returns.
func (c *CPUs) Tuner(id func(name string) (uint16, bool)) *Tuner { return &Tuner{cpus: c, id: id} }

// Tuned implements hypervisor.Tuner. It ignores a temporarily raised weight.
func (t *Tuner) Tuned(name string) (hypervisor.Weight, error) {
	t.cpus.mu.Lock()
	defer t.cpus.mu.Unlock()
	d, err := t.find(name)
	if err != nil {
		return hypervisor.Weight{}, err
	}
	return d.weight(), nil
}

// Tune implements hypervisor.Tuner. Xen itself accepts any value, so all are checked here before any is set.
func (t *Tuner) Tune(name string, set hypervisor.Tuning) error {
	c := t.cpus
	c.mu.Lock()
	defer c.mu.Unlock()
	d, err := t.find(name)
	if err != nil {
		return err
	}
	vcpus, weight, percent := d.info.MaxVCPU+1, set.Weight, set.Cap // Xen's own tools count offline ones, too
	if (weight != nil || percent != nil) && !d.pool.info.Scheduler.Known() {
		return fmt.Errorf("it is in %s, of scheduler %v, which has no weights and caps: credit and credit2 have (xl cpupool-migrate)", d.pool.name(), d.pool.info.Scheduler)
	}
	if weight != nil && (*weight < 1 || *weight > control.MaxWeight) {
		return fmt.Errorf("weight = %d: must be from 1 to %d; 256 is what nothing set comes to", *weight, control.MaxWeight)
	}
	if percent != nil && (*percent < 0 || *percent > mostCap(vcpus)) {
		return fmt.Errorf("cap = %d: must be from 1 to %d, in %% of one CPU, for its %d vCPUs, or 0 for none", *percent, mostCap(vcpus), vcpus)
	}
	if set.Slice != nil { // SetSlice checks the value, so it comes first
		if err := c.x.SetSlice(d.pool.info, *set.Slice); err != nil {
			return err
		}
		d.pool.slice = *set.Slice
	}
	s := d.pool.info.Scheduler
	if weight != nil {
		if err := c.x.SetWeight(s, d.id, uint16(*weight)); err != nil {
			return err
		}
		c.raiser.yield(d.id, int64(*weight))
	}
	if percent != nil {
		return c.x.SetCap(s, d.id, uint16(*percent), vcpus)
	}
	return nil
}

// mostCap returns the greatest cap of so many vCPUs. For very many vCPUs it is limited by the width of Xen's
// parameter. The parameter's greatest value means no change.
func mostCap(vcpus int) int { return min(100*vcpus, math.MaxUint16-1) }

// find returns a domU's current state.
func (t *Tuner) find(name string) (*domain, error) {
	c := t.cpus
	id, ok := t.id(name)
	if !ok {
		return nil, fmt.Errorf("there is no domU %q now", name)
	}
	if err := c.tryRead(false); err != nil {
		return nil, err
	}
	d := c.domains[id]
	if d == nil {
		return nil, fmt.Errorf("domU %q, which is domain %d of Xen's, has just gone", name, id)
	}
	return d, c.weigh(d)
}
