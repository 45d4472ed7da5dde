//go:build soak

package xen

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSoakTraceRecord records what domUs do under each scheduler, to the folder PEGASUS_RECORD:
// mixed ones on two CPUs, one of them with a cap, and two that spin in a CPU pool of one. It made the files
// in hypervisor/xen/schedule/testdata.
func TestSoakTraceRecord(t *testing.T) {
	dir := os.Getenv("PEGASUS_RECORD")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, scheduler := range []string{"credit", "credit2"} {
		t.Run(scheduler+"-mixed", func(t *testing.T) {
			h := Start(t, "sched="+scheduler, quick)
			populate(h, scheduler)
			h.record(dir, scheduler+"-mixed", "spins", "heavy", "wakes")
			if scheduler == "credit" {
				h.Run("xl sched-credit -d heavy -c 40")
				h.record(dir, scheduler+"-capped", "spins", "heavy", "wakes")
			}
		})
		t.Run(scheduler+"-pair", func(t *testing.T) {
			h := Start(t, "sched="+scheduler, quick)
			pair(h, scheduler)
			h.record(dir, scheduler+"-pair", "light", "heavy")
		})
	}
}

// pair starts two domUs that spin in a CPU pool of one, with weights of 256 and 512.
func pair(h *Host, scheduler string) {
	h.t.Helper()
	h.Run("xl cpupool-cpu-remove Pool-0 1")
	h.Run(fmt.Sprintf(`xl cpupool-create 'name="one"' 'sched="%s"' 'cpus=["1"]'`, scheduler))
	const spin = "echo at work\nwhile :; do :; done"
	h.Create("light", spin, `pool="one"`)
	h.Create("heavy", spin, `pool="one"`, "cpu_weight=512")
	for _, name := range []string{"light", "heavy"} {
		h.Await(60*time.Second, name+" spins", func() bool { return h.Said(name, "at work") > 0 })
	}
}

// quick has Xen print to its memory alone: a serial port takes a tenth of a second for a print of the
// schedulers, and all domains stand still meanwhile.
const quick = "console=none"

// record records for some seconds, while the named domUs do something.
func (h *Host) record(dir, name string, busy ...string) {
	h.t.Helper()
	time.Sleep(time.Second)
	h.t.Log(name, h.Run("mkdir -p /tmp/r && probe record /tmp/r 6"))
	each := strings.Join(busy, " ")
	h.Run("for d in " + each + "; do xl pause $d; done") // else to copy takes minutes
	for _, part := range []string{"trace", "dumps"} {
		fetch(h, "/tmp/r/"+part, filepath.Join(dir, name+"."+part+".gz"))
	}
	h.Run("for d in " + each + "; do xl unpause $d; done")
}

// populate starts domUs: two vCPUs that spin, one of twice the weight that does, one that
// rests, and one that works a little again and again.
func populate(h *Host, scheduler string) {
	h.t.Helper()
	const spin = "echo at work\nwhile :; do :; done"
	h.Create("rests", "sleep 3600")
	h.Create("wakes", "echo at work\nwhile :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.02; done")
	h.Await(60*time.Second, "it works", func() bool { return h.Said("wakes", "at work") > 0 })
	h.Create("spins", "while :; do :; done &\n"+spin, "vcpus=2")
	h.Create("heavy", spin)
	h.Run("xl sched-" + scheduler + " -d heavy -w 512")
	h.Await(60*time.Second, "the last one spins", func() bool { return h.Said("heavy", "at work") > 0 })
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
