package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pegasus/guest/agent"
)

// A domU of Xen is checked as one, and no other machine is.
func TestXen(t *testing.T) {
	root := t.TempDir()
	m := machine{root, filepath.Join(root, "guest.sock")}
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
	put("sys/hypervisor/type", "kvm\n")
	if all := m.check(); all[1].Name != "region" {
		t.Errorf("another hypervisor's: %+v", all)
	}
	put("sys/hypervisor/type", "xen\n")
	all := m.check()
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	expect(t, "no modules", all[1], fail, "/dev/xen/evtchn, /dev/xen/gntalloc, /dev/xen/xenbus")
	for _, device := range []string{"xenbus", "gntalloc", "evtchn"} {
		put("dev/xen/"+device, "")
	}
	expect(t, "its devices", m.checkXenDevices(), fine, "devices")
	expect(t, "no limit", m.checkLimit(0), fail, "limit")
	put("sys/module/xen_gntalloc/parameters/limit", "17000\n")
	expect(t, "a limit", m.checkLimit(64<<20), fine, "66 MiB")
	expect(t, "a small limit", m.checkLimit(256<<20), warn, "wants 256 MiB")
	put("proc/xen/capabilities", "control_d\n")
	expect(t, "Dom0", m.checkXen(agent.Status{})[0], fail, "Dom0")

	expect(t, "a store", checkStore("7", nil), fine, "domain 7")
	expect(t, "a store that isn't for all", checkStore("", os.ErrPermission), warn, "root")
	expect(t, "no store", checkStore("", errors.New("it hangs")), fail, "it hangs")
}
