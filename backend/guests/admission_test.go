package guests

import (
	"os"
	"testing"

	"pegasus/configs"
	"pegasus/hypervisor"
)

// arrival is a process that counts its rejections.
type arrival struct {
	hypervisor.Connection
	refused int
}

func (a *arrival) PID() int                   { return 0 }
func (a *arrival) Process() *os.File          { return nil }
func (a *arrival) Refuse(int32, string) error { a.refused++; return nil }

// A process that waits when the daemon ends is not rejected: it connects to the next daemon.
func TestNotRefusedAtTheEnd(t *testing.T) {
	d := newTestRegistry(t, &endpoints{})
	dom, a := newDomain(d, configs.Domain{Name: "x"}, true), &arrival{}
	if (waiting{dom}).receive(d.ctx, a); a.refused != 1 {
		t.Fatalf("refused %d times, want once", a.refused)
	}
	d.end()
	if (waiting{dom}).receive(d.ctx, a); a.refused != 1 {
		t.Error("refused by a daemon that ends")
	}
}
