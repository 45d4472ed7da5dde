package schedule

import (
	"testing"

	"pegasus/hypervisor/xen/trace"
)

// Predictions are compared with the vCPU that ran at the predicted instant, or with idle.
func TestTally(t *testing.T) {
	idle := trace.VCPU{Domain: trace.Idle, Number: 1}
	var l Tally
	l.Foretold(10, []int{0, 1}, []trace.VCPU{id(1), idle}, []trace.VCPU{id(2), id(3)})
	l.Foretold(20, []int{0, 1, 7}, []trace.VCPU{id(1), id(1)}, []trace.VCPU{id(2), idle})
	l.Ran(Run{VCPU: id(1), CPU: 0, From: 5, To: 15})
	l.Ran(Run{VCPU: id(3), CPU: 1, From: 5, To: 10})
	l.Until(11)
	if l.Asked != 2 || l.Hits != 2 || l.AsNow != 0 || !l.Better() {
		t.Errorf("%+v", l)
	}
	l.Ran(Run{VCPU: id(2), CPU: 0, From: 15, To: 30})
	l.Until(30)
	if l.Asked != 4 || l.Hits != 2 || l.AsNow != 2 || len(l.open) != 0 {
		t.Errorf("%+v", l)
	}
	for at := int64(100); at < 110; at++ {
		l.Foretold(at, []int{0}, []trace.VCPU{id(1)}, []trace.VCPU{id(2)})
	}
	l.Ran(Run{VCPU: id(2), CPU: 0, From: 90, To: 200})
	l.Until(200)
	if l.Better() {
		t.Errorf("%+v", l)
	}
	asked := l.Asked
	l.Foretold(300, []int{0}, []trace.VCPU{id(1)}, []trace.VCPU{id(2)})
	l.Drop()
	if l.Until(400); l.Asked != asked {
		t.Errorf("%+v", l)
	}
}
