package sched

import (
	"sync"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/backend/hardware/hardwaretest"
	"pegasus/configs"
)

// quietAccelerator returns an accelerator whose gates do not open because of an old heartbeat.
func quietAccelerator(t *testing.T, c configs.Accelerator) *Accelerator {
	t.Helper()
	bell, err := gate.NewBell() // not freed: a worker may ring it after the loop has ended
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Settings: c, Bell: bell})
	if err != nil {
		t.Fatal(err)
	}
	a.silence = time.Hour
	return a
}

// busyAccelerator returns an accelerator with the default settings, a policy and domains that had work when they were
// last sampled.
func busyAccelerator(t *testing.T, policy string, domains ...string) *Accelerator {
	t.Helper()
	c := configs.Default().Accelerators[0]
	c.Policy = policy
	a := quietAccelerator(t, c)
	a.silence = aliveFor
	for _, name := range domains {
		attachPage(t, a, name)
		a.members[len(a.members)-1].busy = true
	}
	return a
}

func attachPage(t *testing.T, a *Accelerator, name string) *gate.Page {
	t.Helper()
	page, err := gate.New() // not freed: a goroutine may still wait there
	if err != nil {
		t.Fatal(err)
	}
	a.Attach(configs.Domain{Name: name, Credits: 256}, 0, page, nil, new(hardwaretest.Account))
	return page
}

// hold charges a test's domain.
func (m *Attachment) hold(t hardware.EngineTime) { m.account.(*hardwaretest.Account).Hold(t) }

func mustSlot(t *testing.T, p *gate.Page) int {
	t.Helper()
	i, err := p.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func admitted(t *testing.T, m *gate.Member) gate.Ticket {
	t.Helper()
	ticket, v := m.Try(gate.Compute, 1, false)
	if v != gate.Admitted {
		t.Fatalf("verdict %v", v)
	}
	return ticket
}

// acquire starts a request and returns when it waits at the gate or was admitted. The channel receives its ticket.
func acquire(t *testing.T, m *gate.Member, c gate.Class) <-chan gate.Ticket {
	announced, got := make(chan struct{}), make(chan gate.Ticket, 1)
	waits := sync.OnceFunc(func() { close(announced) })
	go func() {
		ticket, err := m.Acquire(c, 1, false, func() (bool, time.Duration) { waits(); return false, 100 * time.Millisecond }, nil)
		if err != nil {
			t.Error(err)
		}
		got <- ticket
		waits()
	}()
	<-announced
	return got
}
