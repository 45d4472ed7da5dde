package xen

import (
	"strings"
	"testing"
)

// part is a test that runs on a shared machine.
type part struct {
	name string
	test func(*testing.T, *Host)
}

var always = []part{
	{"ToolStack", testToolStack}, {"Schedule", testSchedule}, {"Computes", testComputes}, {"Daemon", testDaemon}, {"Shares", testShares},
}

// One machine is booted for all parts: with an emulated processor, the boot takes most of the time.
func TestXen(t *testing.T) { try(t, Start(t), always) }

func try(t *testing.T, h *Host, parts []part) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) { p.test(t, h.of(t)) })
	}
}

// testToolStack: Xen, its tool stack and two domUs run, of which one shares memory with Dom0.
func testToolStack(t *testing.T, h *Host) {
	if out := h.Run("xl info"); !strings.Contains(out, "xen_scheduler          : credit\n") {
		t.Errorf("xl info says:\n%s", out)
	}
	h.Create("one", "echo I am one\n/bin/probe grant")
	h.Create("two", "echo I am two")
	testDevices(t, h, "one")
	for _, name := range []string{"one", "two"} {
		h.Await(jobTime, name+" does its job", func() bool { return h.Said(name, "job ended: 0") > 0 })
		if out := h.Console(name); !strings.Contains(out, "I am "+name) {
			t.Errorf("%s says:\n%s", name, out)
		}
	}
	h.Await(seen, "both have gone", func() bool { return h.Run("xl list | wc -l") == "2" })
}
