//go:build soak

package vm

import (
	"cmp"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// afterPauses measures after pauses of several lengths. FIRST_CALLS overrules the default number of
// measurements.
func afterPauses(t *testing.T, measure func(t *testing.T, arguments ...string)) {
	for pause, often := range map[string]string{"2": "20", "0.1": "200"} {
		t.Run(pause+"s", func(t *testing.T) { measure(t, pause, cmp.Or(os.Getenv("FIRST_CALLS"), often), "call", "echo") })
	}
}

// The duration of a first call when guest, worker and daemon are asleep, and the machine's part of it: an
// echo in the machine is two wake-ups of it, and an echo over a port is the way to the host and back with
// no component of Pegasus on it. It is for people to read.
func TestSoakFirstCall(t *testing.T) {
	afterPauses(t, func(t *testing.T, arguments ...string) {
		h := startHost(t, twoMachines)
		socket := h.path("echo")
		m := h.bootMachine("one", Machine{Echo: socket, Job: waitForAgent +
			"/bench/first " + strings.Join(arguments, " ") + " /dev/$(basename $(dirname $(grep -lx echo /sys/class/virtio-ports/*/name)))\n"})
		go echo(socket)
		eventually(t, time.Hour, "the machine has measured", func() bool { return strings.Contains(m.Output(), "job ended") })
		logTimes(t, m.Output())
	})
}

// The same without a machine, for comparison: the times of daemon and worker alone.
func TestSoakFirstCallOfProcess(t *testing.T) {
	afterPauses(t, func(t *testing.T, arguments ...string) {
		h := startHost(t, twoMachines)
		cmd := exec.Command(built(t, "bin/pegasus"), append([]string{"run", "--runtime-dir", h.dir, "--domain", "one", "--", built(t, "bench/first")}, arguments...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		logTimes(t, string(out))
	})
}

// echo returns all data that arrives from a socket to that socket, until the socket is gone. QEMU may create the
// socket after the call.
func echo(socket string) {
	for range 100 {
		if c, err := net.Dial("unix", socket); err == nil {
			io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// logTimes logs the percentiles of the lines of microseconds that first has printed.
func logTimes(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		what, numbers, ok := strings.Cut(line, " s: ")
		if !ok {
			continue
		}
		var micros []float64
		for _, n := range strings.Fields(numbers) {
			f, err := strconv.ParseFloat(n, 64)
			if err != nil {
				t.Fatal(err)
			}
			micros = append(micros, f)
		}
		slices.Sort(micros)
		part := func(p float64) float64 { return micros[int(p*float64(len(micros)-1))] / 1000 }
		t.Logf("%-26s %4d times: p50 %6.3f p90 %6.3f p99 %6.3f most %6.3f ms", what+" s", len(micros), part(.5), part(.9), part(.99), part(1))
	}
}
