//go:build soak

package xen

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSoakTraceRecord records what domUs that spin, rest and wake often do, under each
// scheduler, to the folder PEGASUS_RECORD. What is in hypervisor/xen/schedule/testdata was
// made by it.
func TestSoakTraceRecord(t *testing.T) {
	dir := os.Getenv("PEGASUS_RECORD")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, scheduler := range []string{"credit", "credit2"} {
		t.Run(scheduler, func(t *testing.T) {
			h := Start(t, "sched="+scheduler)
			populate(h, scheduler)
			for _, part := range []string{"free", "pinned"} {
				if part == "pinned" {
					h.Run("for d in spins heavy; do xl vcpu-pin $d all 1; done; xl vcpu-pin 0 all 0")
					time.Sleep(time.Second)
				}
				t.Log(h.Run("mkdir -p /tmp/r && probe record /tmp/r 3"))
				h.Run("for d in spins heavy wakes; do xl pause $d; done") // else to copy takes minutes
				for _, name := range []string{"trace", "dumps"} {
					fetch(h, "/tmp/r/"+name, filepath.Join(dir, scheduler+"-"+part+"."+name+".gz"))
				}
				h.Run("for d in spins heavy wakes; do xl unpause $d; done")
			}
		})
	}
}

// populate starts domUs: two vCPUs that spin, one of twice the weight that does, one that
// rests, and one that works a little again and again.
func populate(h *Host, scheduler string) {
	h.t.Helper()
	const spin = "echo at work\nwhile :; do :; done"
	h.Create("rests", "sleep 3600")
	h.Create("wakes", "echo at work\nwhile :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.02; done")
	h.Await(60*time.Second, "it works", func() bool { return strings.Contains(h.Console("wakes"), "at work") })
	h.Create("spins", "while :; do :; done &\n"+spin, "vcpus=2")
	h.Create("heavy", spin)
	h.Run("xl sched-" + scheduler + " -d heavy -w 512")
	h.Await(60*time.Second, "the last one spins", func() bool { return strings.Contains(h.Console("heavy"), "at work") })
}

// fetch copies a file out of Dom0, packed.
func fetch(h *Host, from, to string) {
	h.t.Helper()
	packed, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(h.Run("gzip -9 -c "+from+" | base64"), "\n", ""))
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(to, packed, 0o644); err != nil {
		h.t.Fatal(err)
	}
}
