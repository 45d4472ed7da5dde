package soft

import (
	"fmt"

	"pegasus/accel"
	"pegasus/accel/residence"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// SetShare changes the domain's share of the device memory. Any goroutine may call it.
func (d *Device) SetShare(s accel.Share) {
	d.setShare(d.config.Domain, s)
}

func (m *deviceMemory) setShare(domain string, s accel.Share) {
	m.worker.SetShare(engine.DomainNumber(domain), s.Guarantee, s.Priority)
}

// startSwapping enables eviction, if the accelerator may have more allocations than fit.
func (m *deviceMemory) startSwapping(swapped residence.Moved) error {
	if m.shared.Swap() == 0 {
		return nil
	}
	if err := m.space.Mirror(); err != nil {
		return err
	}
	var err error
	if m.ledger, err = engine.NewLedger(m.worker); err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	m.residence = residence.New(m.space, m.ledger, swapped)
	return nil
}

func (m *deviceMemory) stopSwapping() {
	if m.residence != nil {
		m.residence.Close()
		m.ledger.Close()
	}
}

// enter makes the memory that n uses resident, until the crew that n leads is gone, or pauses.
func (e *executor) enter(m *member, n *node) cuda.Result {
	r := e.dev.residence
	switch {
	case r == nil || n.inline: // see tryAcquire
	case n.runsKernels():
		if err := e.moveIn(m); err != nil {
			if r := n.ctx.Err(); r != cuda.Success {
				return r
			}
			e.dev.log.Warn("kernel refused", "work", n.describe(), "err", err)
			return cuda.ErrorOutOfMemory
		}
	default:
		r.Begin()
		e.mu.Lock()
		e.entered = true
		e.mu.Unlock()
	}
	return cuda.Success
}

// exit ends the effect of enter. mu is held.
func (e *executor) exit(n *node) {
	if e.entered {
		e.entered = false
		e.dev.residence.End(n.runsKernels())
	}
}

// mayEnter is enter for work that its submitter executes, if it need not wait. mu is held.
func (e *executor) mayEnter(n *node) bool {
	r := e.dev.residence
	e.entered = r != nil && r.TryBegin(n.runsKernels())
	return r == nil || e.entered
}

// home returns the current memory of an allocation. The caller has entered.
func (m *deviceMemory) home(mem []byte) []byte {
	if m.residence == nil {
		return mem
	}
	addr, ok := m.space.AddressOf(mem)
	if !ok || !m.residence.Absent(addr) {
		return mem
	}
	return m.space.Evicted(addr, uint64(len(mem)))
}

// Evicted returns the bytes of the process's memory that are not on the device.
func (d *Device) Evicted() uint64 {
	if d.residence == nil {
		return 0
	}
	return d.residence.Away()
}
