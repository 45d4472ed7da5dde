package test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"pegasus/internal/testkit"
)

const oneCore = `
[daemon]
libvirt = []
[default_domain]
arena = "16MiB"
[[accelerator]]
name = "soft0"
type = "soft"
cores = 1
memory = "1GiB"
`

// Three pods get the accelerator's time by their claims. A fourth does not fit until one of them has ended.
func TestShares(t *testing.T) {
	n := newNode(t, oneCore)
	s := newScheduler(n)
	steps := n.stepsPerMs(s)
	credits := map[*resourceapi.ResourceClaim]float64{}
	for _, c := range []string{"128", "256", "512"} {
		claim := s.placed(capacity(c, "64Mi"))
		credits[claim] = number(c)
		n.start(n.mustPrepare(claim), hardened, "/bin/busy", "--seconds", "3600", "--queue", "100", "--steps", fmt.Sprint(2*steps), "--no-check", "--quiet")
	}
	computed := func() (all map[*resourceapi.ResourceClaim]float64, sum float64) {
		all, domains := map[*resourceapi.ResourceClaim]float64{}, n.domains()
		for claim := range credits {
			all[claim] = float64(domains["k8s-"+string(claim.UID)].Compute)
			sum += all[claim]
		}
		return all, sum
	}
	testkit.Within(t, 5*time.Minute, "all pods compute", func() bool {
		all, _ := computed()
		for _, ns := range all {
			if ns < 1e8 {
				return false
			}
		}
		return true
	})
	before, sum := computed()
	testkit.Within(t, 5*time.Minute, "four seconds of engine time were used", func() bool {
		_, now := computed()
		return now > sum+4e9
	})
	after, now := computed()
	for claim, c := range credits {
		got, want := (after[claim]-before[claim])/(now-sum), c/(128+256+512)
		t.Logf("%v credits: %.1f %%, want %.1f %%", c, 100*got, 100*want)
		if math.Abs(got-want) > 0.02 {
			t.Errorf("%v credits: got %.1f %% of the time, want %.1f %%", c, 100*got, 100*want)
		}
	}
	fourth := s.claim(capacity("256", "64Mi"))
	if s.allocate(fourth) {
		t.Fatal("a fourth pod was placed beside 896 of 1024 credits")
	}
	for claim, c := range credits {
		if c == 512 {
			n.unprepare(claim)
			s.free(claim)
		}
	}
	if !s.allocate(fourth) {
		t.Fatal("the fourth pod was not placed when another had ended")
	}
	n.mustCompute(n.mustPrepare(fourth), nil)
}

func number(text string) (n float64) {
	fmt.Sscan(text, &n)
	return n
}

// stepsPerMs returns the steps of the program busy that take a millisecond.
func (n *node) stepsPerMs(s *scheduler) int {
	n.t.Helper()
	claim := s.placed(capacity("1024", "64Mi"))
	out, err := n.run(n.mustPrepare(claim), nil, "/bin/busy", "--kernel-ms", "5", "--iterations", "1", "--json", "--quiet")
	var report struct {
		Steps float64 `json:"steps"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &report)
	}
	if err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	n.unprepare(claim)
	s.free(claim)
	return max(1, int(report.Steps/5))
}

// A pod that allocates more than its claim gets an error, and no other pod does.
func TestMemory(t *testing.T) {
	n := newNode(t, oneAccelerator)
	s := newScheduler(n)
	greedy, other := n.mustPrepare(s.placed(capacity("256", "64Mi"))), n.mustPrepare(s.placed(capacity("256", "512Mi")))
	large := []string{"/bin/vectoradd", "--size", "16777216", "--iterations", "1", "--quiet"} // three vectors of 64 MiB
	if out, err := n.run(greedy, nil, large...); err == nil || !strings.Contains(out, "OUT_OF_MEMORY") {
		t.Errorf("192 MiB of 64 MiB: got %v: %s", err, out)
	}
	if out, err := n.run(other, nil, large...); err != nil || !right.MatchString(out) {
		t.Errorf("192 MiB of 512 MiB: got %v: %s", err, out)
	}
	n.mustCompute(greedy, nil)
}
