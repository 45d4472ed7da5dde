package guests

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"pegasus/backend/gate"
	"pegasus/backend/pidfd"
	"pegasus/backend/sched"
	"pegasus/backend/workers"
	"pegasus/configs"
)

// adoption takes over the workers that the previous daemon left. Registry.mu is held during every call, except of
// reapLate.
type adoption struct{ reg *Registry }

// adopt takes over the survivors: their domains keep their accelerator, memory and accounts. Registry.mu is held.
func (ad adoption) adopt(left []*workers.Survivor) {
	reg := ad.reg
	for _, s := range left {
		if err := ad.adoptOne(s); err != nil {
			reg.log.Warn("take over a worker of the previous daemon failed; ending the worker", "pid", s.PID, "domain", s.Domain, "err", err)
			s.End()
			if a := reg.accelerator(s.Accelerator); a != nil {
				a.Hardware.Reap(s.Domain, s.PID)
			}
			s.Conn.Close()
			reg.workers.Strike(s.ID)
		} else {
			reg.adopted++
		}
		s.Files.Close()
	}
	for _, dom := range reg.domains {
		ad.freeVacantSlots(dom)
	}
	for _, a := range reg.accelerators {
		var here, accounts []string
		for _, dom := range reg.domains {
			if dom.on == a {
				here, accounts = append(here, dom.name), append(accounts, dom.name)
			} else if left := a.Hardware.OpenAccount(dom.name); left != nil { // the previous daemon ended before it closed it
				a.ChargeAbsent(dom.settings, left)
				if dom.account != nil && dom.account != left { // the domain has one on another accelerator
					left.Close()
					continue
				}
				dom.account, reg.store.changed = left, true // save closes it
				accounts = append(accounts, dom.name)
			}
		}
		a.Hardware.KeepCommons(here) // other domains may have left while no daemon ran
		a.Hardware.KeepAccounts(accounts)
	}
	if reg.adopted > 0 {
		reg.journal.Note("adopt", "", "took over %d workers", reg.adopted)
	}
}

func (ad adoption) adoptOne(s *workers.Survivor) error {
	reg := ad.reg
	dom, err := ad.domainOf(s.Domain)
	if err != nil {
		return err
	}
	a := reg.accelerator(s.Accelerator)
	switch {
	case a == nil:
		return fmt.Errorf("accelerator %q is no longer configured", s.Accelerator)
	case dom.on != nil && dom.on != a:
		return fmt.Errorf("worker is on %s, its domain on %s", a.Name, dom.on.Name)
	case s.Slot < 0 || s.Slot >= gate.Slots || reg.slices[s.Slice]:
		return fmt.Errorf("slot %d or device window %d: out of range, or taken", s.Slot, s.Slice)
	}
	g, err := survivingGuest(dom, s)
	if err != nil {
		return err
	}
	if err := ad.takeOver(a, dom, s); err != nil {
		g.close()
		return err
	}
	g.resume(s)
	return nil
}

// takeOver attaches a survivor's domain to its accelerator with the survivor's gate page, or, if the domain is attached
// already, checks that both have the same page. Registry.mu is held.
func (ad adoption) takeOver(a *accelerator, dom *domain, s *workers.Survivor) error {
	if dom.on == nil {
		if err := dom.openAccount(a); err != nil {
			return err
		}
		if err := sameHardware(a.Hardware.Files(dom.name), s.Files.Hardware); err != nil {
			return err
		}
		page, err := gate.Adopt(s.Files.Gate)
		if err != nil {
			return err
		}
		store := s.Files.Store
		s.Files.Gate, s.Files.Store = nil, nil
		ad.reg.setQuotas(page, dom.settings)
		dom.on, dom.attachment = a, a.Attach(dom.settings, dom.cpu.Credits, page, store, dom.account)
		return nil
	}
	if !pidfd.SameFile(s.Files.Gate, dom.attachment.Page.File()) {
		return errors.New("gate page differs from the domain's")
	}
	return sameHardware(a.Hardware.Files(dom.name), s.Files.Hardware)
}

// sameHardware returns an error unless a worker's accelerator files are those of its domain.
func sameHardware(want, has []*os.File) error {
	if !slices.EqualFunc(want, has, pidfd.SameFile) {
		return errors.New("accelerator files differ from the domain's")
	}
	return nil
}

// domainOf returns a survivor's domain, whether or not the configuration declares it. Registry.mu is held.
func (ad adoption) domainOf(name string) (*domain, error) {
	reg := ad.reg
	if dom := reg.domains[name]; dom != nil {
		return dom, nil
	}
	if _, err := reg.config.Domain(name); err != nil && configs.CheckName(name) == nil {
		return reg.newUndeclared(name, configs.Domain{}), nil
	}
	return reg.domain(name)
}

// survivingGuest returns a guest for a survivor, or an error if that has ended meanwhile.
func survivingGuest(dom *domain, s *workers.Survivor) (*guest, error) {
	p, err := pidfd.Open(s.PID)
	if err != nil {
		return nil, err
	}
	g := &guest{id: s.ID, dom: dom, slot: s.Slot, win: s.Slice, pid: s.Guest, arena: s.Arena,
		worker: workers.Adopted(s, p), serving: make(chan struct{}), gone: make(chan struct{})}
	if s.Files.GuestProcess != nil {
		if g.process, err = pidfd.Dup(s.Files.GuestProcess); err != nil {
			p.Close()
			return nil, err
		}
	}
	return g, nil
}

// resume serves a guest of the previous daemon. Registry.mu is held.
func (g *guest) resume(s *workers.Survivor) {
	reg := g.dom.reg
	dom := g.dom
	if s.UID != 0 {
		dom.uid = s.UID
		reg.workers.KeepUID(s.UID)
	}
	reg.slices[g.win] = true
	reg.guests[g.id] = g
	reg.nextGuest = max(reg.nextGuest, g.id)
	dom.guests[g] = struct{}{}
	reg.shareProcessors()
	g.worker.Order(g.standing())
	reg.tasks.Go(func() { g.attend() })
}

// freeVacantSlots frees the slots of a domain's page that no guest of the domain has. Their workers ended while no
// daemon ran, or never joined, and their resources would count until the domain's last process ends. Registry.mu is
// held.
func (ad adoption) freeVacantSlots(dom *domain) {
	reg := ad.reg
	if dom.on == nil {
		return
	}
	slots := dom.attachment.Page.Occupants()
	for g := range dom.guests {
		delete(slots, g.slot)
	}
	freed := false
	for slot, pid := range slots {
		p, err := pidfd.Open(pid)
		if err != nil && pid != 0 && !errors.Is(err, unix.ESRCH) {
			reg.log.Warn("identify the process of a gate page's slot failed; keeping the slot", "domain", dom.name, "pid", pid, "err", err)
			continue
		}
		if err != nil || pidfd.HasExited(p) {
			closeFile(p)
			dom.on.Hardware.Reap(dom.name, pid)
			dom.reap(slot)
			freed = true
			continue
		}
		// It was ended just now and may still write to the page, or could not be identified.
		m := dom.attachment
		reg.tasks.Go(func() {
			defer p.Close()
			if pidfd.AwaitExit(reg.ctx, p) != nil {
				return
			}
			if ad.reapLate(dom, m, slot, pid) {
				dom.clearSegments(m)
			}
		})
	}
	if m := dom.attachment; freed {
		reg.tasks.Go(func() { dom.clearSegments(m) })
	}
}

// reapLate is reap for a worker without a guest that also held engines. It returns false if the page was freed with the
// domain's last guest before.
func (ad adoption) reapLate(dom *domain, m *sched.Attachment, slot, pid int) bool {
	reg := ad.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if dom.attachment != m {
		return false
	}
	dom.on.Hardware.Reap(dom.name, pid)
	dom.reap(slot)
	return true
}
