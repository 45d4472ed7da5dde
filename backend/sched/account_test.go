package sched

import (
	"testing"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
)

// Policies are charged by the measured hold of each engine, whatever workers report.
func TestChargedByEngine(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "lag", Accounts: "mrq"})
	page := attachPage(t, a, "a")
	member := gate.Join(page, a.Bell, mustSlot(t, page))
	member.Spend(new(gate.Ticket), accel.Usage{Class: accel.CopyOut, End: 1e9})
	m := a.members[0]
	m.hold(hardware.EngineTime{Compute: 7, CopyIn: 20, CopyOut: 300})
	a.turn()
	a.turn()
	st, _ := a.sched.Stat(m.ID)
	if st.Used.Compute != 7 || st.Used.Copy != 320 {
		t.Errorf("charged %+v", st.Used)
	}
}
