package vm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// foe builds the foe, and returns it as a file for a machine.
func (h *host) foe() map[string]string {
	h.t.Helper()
	path := h.path("foe")
	build := exec.Command("go", "build", "-o", path, "./foe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
	return map[string]string{"/bin/foe": path}
}

// A process of one user can reach neither another user's process nor that process's memory on the
// region, whatever it tries with its own descriptors and memory.
func TestPry(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Files: h.foe(), Job: waitForAgent + `
echo 'user:x:1000:1000:user:/:/bin/sh' >>/etc/passwd
su -s /bin/sh -c '/bench/vectoradd --quiet --json' user
su -s /bin/sh -c '/bench/busy --seconds 3600 --queue 2 --quiet --json && echo "went on"' user &
while [ $(ls /run/pegasus-guest/region | grep -c -e -2) != 1 ]; do sleep 0.1; done
sleep 1
su -s /bin/sh -c "foe pry $(pidof busy)" nobody
echo "as root of a name space of its own:"
su -s /bin/sh -c "unshare -r foe pry $(pidof busy)" nobody
kill $(pidof busy) # which ends as if its time were up
wait $!
`})
	out := m.finish()
	if strings.Count(out, " attacks 0 succeeded") != 2 || strings.Contains(out, "BROKEN") {
		t.Errorf("some attack succeeded:\n%s", out)
	}
	if strings.Count(out, `"right"`) != 2 || !strings.Contains(out, "went on") {
		t.Errorf("the victim didn't compute what is right:\n%s", out)
	}
	t.Log(out)
}

// The root of a machine writes arbitrary data into the memory that is shared with the host. Only
// that machine suffers: another machine gets correct results, with its share; daemon and hub
// stay small and mostly idle, and nothing is left when the machine is off.
func TestScribble(t *testing.T) { scribble(t, 6*time.Second, Machine{}) }

// The same with a PCI device as the region.
func TestScribbleShared(t *testing.T) { scribble(t, 6*time.Second, Machine{Shared: true}) }

func scribble(t *testing.T, d time.Duration, kind Machine) {
	hostile(t, d, kind, `
/bench/busy --seconds 3600 --queue 4 --no-check --quiet &
/bench/busy --seconds 3600 --queue 4 --no-check --quiet &
sleep 1
(while :; do /bench/vectoradd --quiet >/dev/null 2>&1; done) &
(while :; do sleep 2; kill -9 $agent; pegasus-guest agent & agent=$!; done) &
`, "scribble")
}

// hostile runs an attack in one machine while another machine computes.
func hostile(t *testing.T, d time.Duration, kind Machine, before, act string) {
	h := startHost(t, twoMachines)
	wait := waitForAgent
	if kind.Shared {
		wait = waitForShared
	}
	kind.Files, kind.Job = h.foe(), wait+before+fmt.Sprintf(`
echo begun
foe %s %d
echo "foe ended: $?"
sleep 3600
`, act, int(d.Seconds()))
	foe := h.bootMachine("one", kind)
	// Both boot at once, so that the honest one still computes when the foe has ended.
	honest := h.boot("three", fmt.Sprintf(`
/bench/busy --seconds %d --queue 4 --quiet --json && echo "went on"
/bench/vectoradd --json
`, int((d+14*time.Second).Seconds())))
	eventually(t, bootTime, "the honest machine computes", func() bool { return h.domain("three").GPU > 0 })
	eventually(t, bootTime, "the foe begins", func() bool { return strings.Contains(foe.Output(), "begun") })
	from, honestBefore, foeBefore := h.processorTime(), h.domain("three").GPU, h.domain("one").GPU
	begin, largest := time.Now(), 0
	for time.Since(begin) < d {
		largest = max(largest, h.residentKiB())
		time.Sleep(100 * time.Millisecond)
	}
	took := time.Since(begin)
	used := h.processorTime() - from
	eventually(t, bootTime, "the foe has ended", func() bool { return strings.Contains(foe.Output(), "foe ended") })
	ours, foes := h.domain("three").GPU-honestBefore, h.domain("one").GPU-foeBefore
	share := float64(ours) / float64(ours+foes)
	t.Log(foe.Output())
	t.Logf("for %v daemon and hubs had at most %d KiB each and %.2f cores; the honest machine had %.2f of the accelerator's time, %v", took.Round(time.Second), largest, float64(used)/float64(took), share, time.Duration(ours))
	if largest > 64<<10 {
		t.Errorf("daemon or hub had %d KiB", largest)
	}
	if used > took {
		t.Errorf("daemon and hubs used %v of processors in %v", used, took)
	}
	if ours == 0 || share < 0.5 {
		t.Errorf("the honest machine had %.2f of the accelerator's time, want half of it: it has three quarters of the credits", share)
	}
	foe.Kill()
	foe.Wait()
	foe.remove()
	eventually(t, soon, "nothing is left of the machine", func() bool {
		d := h.domain("one")
		return d.Processes == 0 && d.Memory == 0 && len(h.hubs()) == 1
	})
	if out := honest.finish(); strings.Count(out, `"right"`) != 2 || !strings.Contains(out, "went on") {
		t.Errorf("the honest machine didn't compute what is right:\n%s", out)
	}
	log, err := os.ReadFile(h.path("log"))
	if err != nil || len(log) > 1<<20 {
		t.Errorf("the log is of %d bytes, %v", len(log), err)
	}
	if !strings.Contains(string(log), "session ends") {
		t.Error("what was written hit nobody")
	}
}

// hubs returns the hubs' process IDs.
func (h *host) hubs() (pids []int) {
	h.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, path := range all {
		line, _ := os.ReadFile(path)
		args := bytes.Split(line, []byte{0})
		if len(args) > 1 && string(args[1]) == "hub" && bytes.Contains(line, []byte(h.regions)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// processorTime returns the CPU time that daemon and hubs have used.
func (h *host) processorTime() (sum time.Duration) {
	for _, pid := range append(h.hubs(), h.daemon.Process.Pid) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 12 {
			user, _ := strconv.Atoi(f[11])
			system, _ := strconv.Atoi(f[12])
			sum += time.Duration(user+system) * 10 * time.Millisecond
		}
	}
	return sum
}

// residentKiB returns the memory of the largest of daemon and hubs, without the memory that it shares with a machine.
func (h *host) residentKiB() (most int) {
	for _, pid := range append(h.hubs(), h.daemon.Process.Pid) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
				n, _ := strconv.Atoi(f[1])
				most = max(most, n)
			}
		}
	}
	return most
}
