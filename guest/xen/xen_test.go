package xen

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/callbuf/grant"
	"pegasus/guest/agent"
)

// A machine under Xen, and Dom0, are recognised by their files.
func TestHere(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if Here(root) || IsDom0(root) {
		t.Error("nothing is taken for Xen")
	}
	put("sys/hypervisor/type", "kvm\n")
	if Here(root) {
		t.Error("another hypervisor is taken for Xen")
	}
	put("dev/xen/xenbus", "")
	if !Here(root) {
		t.Error("a device of Xen's isn't seen")
	}
	os.RemoveAll(filepath.Join(root, "dev"))
	put("sys/hypervisor/type", "xen\n")
	if !Here(root) || IsDom0(root) {
		t.Error("a domU isn't seen")
	}
	put("proc/xen/capabilities", "control_d\n")
	if !IsDom0(root) {
		t.Error("Dom0 isn't seen")
	}
}

// An agent grants no more than its limit, and the previous agent's grants count.
func TestMemory(t *testing.T) {
	g := &sharedMemory{memory: 16 << 20, used: 10 << 20, segments: map[string]segment{"9-1": {bytes: 10 << 20}}}
	if most := g.MostArena(); most != 12<<20 {
		t.Errorf("an arena of %d", most)
	}
	for _, bytes := range []uint64{6<<20 + grant.PageBytes, 1 << 63, ^uint64(0)} {
		if _, err := g.Create("9-2", bytes); err == nil || !strings.Contains(err.Error(), "--memory") || !strings.Contains(err.Error(), LimitFile) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	if err := g.Remove("9-1"); err != nil || g.used != 0 {
		t.Errorf("%d bytes are used, %v", g.used, err)
	}
	if err := g.Remove("9-1"); !os.IsNotExist(err) {
		t.Errorf("once more: %v", err)
	}
}

// Without the previous agent's descriptors there is nothing to resume.
func TestNothingKept(t *testing.T) {
	_, domU := stores(t)
	g := &sharedMemory{machine: &Machine{}, fdStore: &agent.FDStore{}, store: domU, segments: map[string]segment{}}
	if _, err := g.Resume(agent.Record{}); !errors.Is(err, errNoRendezvous) {
		t.Error(err)
	}
	if err := publish(domU, &rendezvous{control: 8, port: 9}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Resume(agent.Record{}); err != errNotKept {
		t.Error(err)
	}
}

// An agent that starts anew may grant the full amount again, whatever the previous one had granted.
func TestBeginsAnew(t *testing.T) {
	g := &sharedMemory{machine: &Machine{}, fdStore: &agent.FDStore{}, memory: 16 << 20, used: 10 << 20, segments: map[string]segment{"9-1": {bytes: 10 << 20}}}
	if g.forget(); g.used != 0 || len(g.segments) != 0 {
		t.Errorf("%d bytes and %d segments are taken for used", g.used, len(g.segments))
	}
}
