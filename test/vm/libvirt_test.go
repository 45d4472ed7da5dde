package vm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/hypervisor/kvm"
)

// Machines of a stock libvirt are attached by one command each, and share an accelerator
// by their credits. One that is destroyed leaves nothing behind.
func TestLibvirt(t *testing.T) {
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	one := l.machine("one", backlogged)
	l.machine("three", backlogged)
	l.run("virsh", "start", "one")
	l.run("virsh", "start", "three")
	h.checkShares()
	if !strings.Contains(h.log(), "has a port that wakes") || !strings.Contains(one.Output(), "the host wakes us") {
		t.Error("nothing wakes hub or agent")
	}
	l.run("virsh", "destroy", "three")
	for _, left := range []string{filepath.Join(h.regions, "three"), kvm.PortPath(filepath.Join(h.regions, "three"))} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
	eventually(t, 2*time.Second, "nothing is left of a machine that was destroyed", func() bool {
		d := h.domain("three")
		return d.Processes == 0 && d.Memory == 0
	})
	if d := h.domain("one"); d.Processes != 1 {
		t.Errorf("the other machine has %d processes", d.Processes)
	}
}

// checkShares looks whether a machine with three times the credits of another has three
// times its share. Machines without hardware's help share the host's processors with the
// accelerator, so that one may now and then have nothing queued: some points are theirs.
func (h *host) checkShares() {
	h.t.Helper()
	names := []string{"one", "three"}
	eventually(h.t, bootTime, "both compute", func() bool {
		return !slices.ContainsFunc(h.use(names), func(p portion) bool { return p.used < begun })
	})
	all := h.portions(8*time.Second, func([]portion) {}, names...)
	h.t.Logf("of the accelerator's time the machines had: %v", all)
	if off := all[1].off(); off < -4 || off > 4 {
		h.t.Errorf("the machine with three quarters of the credits had %.1f %%", all[1].measured)
	}
}
