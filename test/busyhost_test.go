package test

import (
	"fmt"
	"math"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// On a host with its processors taken by busy processes no kernel is killed that computes for less than
// kernel_timeout, however long that takes, and backlogged domains have their shares of engine time.
func TestBusyHost(t *testing.T) { busyHost(t, 3*time.Second) }

// busyHost runs until the domains together have used so much engine time.
func busyHost(t *testing.T, used time.Duration) {
	const (
		busy     = 8
		kernelMs = 300
		timeout  = "700ms"
	)
	sharers := []sharer{{"small", 256, kernelMs}, {"large", 768, kernelMs}}
	steps := max(1, math.Round(kernelMs*stepsPerMs(t)))
	config := strings.Replace(shareConfig("accc", "production", sharers), "[[domain]]", fmt.Sprintf("kernel_timeout = %q\n[[domain]]", timeout), 1)
	h := startHost(t, config+"[[domain]]\nname = \"late\"\n")
	for range busy {
		loop := exec.Command("sh", "-c", "while kill -0 $PPID; do :; done") // ends with the test, however the test ends
		loop.SysProcAttr = &syscall.SysProcAttr{Setsid: true}               // the kernel may divide processors among sessions first
		background(t, loop)
	}
	for _, s := range sharers {
		background(t, h.bench(s.name, "busy", "--seconds", "3600", "--queue", "2", "--steps", fmt.Sprint(steps), "--no-check"))
	}
	h.await(sharers)
	start := h.domains()
	gpu := func() (small, large int64) {
		now := h.domains()
		for _, s := range sharers {
			if n := now[s.name].Processes; n != 1 {
				t.Fatalf("domain %s has %d processes: a kernel of %d ms was ended by kernel_timeout = %s", s.name, n, kernelMs, timeout)
			}
		}
		return now["small"].GPU - start["small"].GPU, now["large"].GPU - start["large"].GPU
	}
	eventually(t, 10*soon, "the domains use the accelerator", func() bool {
		small, large := gpu()
		return time.Duration(small+large) > used
	})
	small, large := gpu()
	if share := 100 * float64(small) / float64(small+large); math.Abs(share-25) > 2 {
		t.Errorf("the domain with 256 of 1024 credits got %.1f %% of the engine time, want 25 ± 2", share)
	}
	// A kernel that does compute for longer is killed all the same.
	const endless = "4000000000"
	if out, err := h.bench("late", "busy", "--seconds", "3600", "--queue", "1", "--steps", endless, "--no-check").CombinedOutput(); err == nil {
		t.Errorf("a kernel of %s steps is not ended by kernel_timeout = %s: %s", endless, timeout, out)
	}
}
