package domus

import (
	"fmt"
	"sync"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// Tuner sets domUs' part of the CPUs, in Xen's scheduler. It fulfils hypervisor.Tuner.
type Tuner struct {
	id func(name string) (uint16, bool)

	mu sync.Mutex
	x  *control.Xen
}

// NewTuner is for domUs whose number id tells. Nobody else may use x.
func NewTuner(x *control.Xen, id func(name string) (uint16, bool)) *Tuner {
	return &Tuner{id: id, x: x}
}

// Tuned fulfils hypervisor.Tuner.
func (t *Tuner) Tuned(name string) (hypervisor.Weight, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, s, err := t.find(name)
	if err != nil {
		return hypervisor.Weight{}, err
	}
	p, err := t.x.Params(s, id)
	return hypervisor.Weight{Credits: vcpu.Credits(p.Weight), Cap: int(p.Cap)}, err
}

// Tune fulfils hypervisor.Tuner. Xen itself takes anything, so all is checked here before anything is set.
func (t *Tuner) Tune(name string, weight, percent *int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, s, err := t.find(name)
	if err != nil {
		return err
	}
	vcpus, err := t.vcpus(id)
	if err != nil {
		return err
	}
	if weight != nil && (*weight < 1 || *weight > control.MaxWeight) {
		return fmt.Errorf("weight = %d: must be from 1 to %d; 256 is what nothing set comes to", *weight, control.MaxWeight)
	}
	if percent != nil && (*percent < 0 || *percent > 100*vcpus) {
		return fmt.Errorf("cap = %d: must be from 1 to %d, in %% of one CPU, for its %d vCPUs, or 0 for none", *percent, 100*vcpus, vcpus)
	}
	if weight != nil {
		if err := t.x.SetWeight(s, id, uint16(*weight)); err != nil {
			return err
		}
	}
	if percent != nil {
		return t.x.SetCap(s, id, uint16(*percent), vcpus)
	}
	return nil
}

// find returns a domU's number, and the scheduler that runs.
func (t *Tuner) find(name string) (uint16, control.Scheduler, error) {
	id, ok := t.id(name)
	if !ok {
		return 0, 0, fmt.Errorf("there is no domU %q now", name)
	}
	s, err := t.x.Scheduler()
	return id, s, err
}

// vcpus is how many of a domain's are online.
func (t *Tuner) vcpus(id uint16) (int, error) {
	all, err := t.x.Domains()
	for _, d := range all {
		if d.ID == id {
			return d.VCPUs, err
		}
	}
	if err == nil {
		err = fmt.Errorf("domain %d has just gone", id)
	}
	return 0, err
}
