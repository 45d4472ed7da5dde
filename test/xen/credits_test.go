package xen

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// agreement is the result of a comparison of the daemon's model of domUs' credits with the hypervisor's credits.
type agreement struct {
	n, agree, off       float64 // off is in credits of 100 µs
	predicted, wrong    float64 // parts of a coming period that were predicted, and the sum of their errors
	vcpus, signs, us    float64 // vCPUs at the time of the print, those with a sign that agrees, and the sum of the errors in µs
	asked, right, asNow float64 // CPUs with a predicted next vCPU, right predictions, and CPUs on which the vCPU stayed the same
	cost                float64 // percent of a CPU
}

func (s agreement) String() string {
	return fmt.Sprintf("of %.0f signs of vCPUs %.3f agree with what was printed then, %.2f ms off in the mean; of %.0f signs of domains %.3f with what was printed next, %.2f ms off; "+
		"what part of the coming period a vCPU runs is foretold with an error of %.3f in the mean; who runs is right in %.3f of %.0f, and that all goes on as now in %.3f; looking takes %.1f %% of an emulated CPU",
		s.vcpus, s.signs/max(s.vcpus, 1), s.us/max(s.vcpus, 1)/1000, s.n, s.agree/s.n, s.off/s.n/10, s.wrong/s.predicted, s.right/max(s.asked, 1), s.asked, s.asNow/max(s.asked, 1), s.cost)
}

// credits compares the modelled credits of domains with the hypervisor's credits so many times, using the hypervisor's trace.
func (h *Host) credits(times int, domains string) agreement {
	return h.compare("credits", times, domains)
}

func (h *Host) compare(how string, times int, domains string) (s agreement) {
	h.t.Helper()
	ids := h.Run("for d in " + domains + "; do xl domid $d; done | tr '\\n' ' '")
	out := h.Run(fmt.Sprintf("probe cpus %s %d %s", how, times, ids))
	for line := range strings.Lines(out) {
		var what string
		var at int
		var one, two, three float64
		switch {
		case strings.HasPrefix(line, "credit ") || strings.HasPrefix(line, "ran "):
			if n, _ := fmt.Sscan(line, &what, &at, &three, &one, &two); n != 5 {
				h.t.Fatalf("%q", line)
			}
			if at < 5 { // the model has too little history yet
				continue
			}
			if what == "ran" {
				s.predicted, s.wrong = s.predicted+1, s.wrong+math.Abs(one-two)/1000
				continue
			}
			s.n, s.off = s.n+1, s.off+math.Abs(one-two)
			if (one > 0) == (two > 0) {
				s.agree++
			}
		case strings.HasPrefix(line, "agreed "):
			fmt.Sscan(line, &what, &s.vcpus, &s.signs, &s.us)
		case strings.HasPrefix(line, "foretold "):
			fmt.Sscan(line, &what, &s.asked, &s.right, &s.asNow)
		case strings.HasPrefix(line, "cost "):
			fmt.Sscan(line, &what, &s.cost)
		default:
			h.t.Logf("%s", line)
		}
	}
	return s
}

// testCredits: the daemon's model of domUs' credits agrees with the hypervisor's credits. A soak test measures
// how well, on a calm host.
func testCredits(t *testing.T, h *Host, domains string) {
	t.Helper()
	s := h.credits(25, domains)
	t.Log(s)
	if s.n < 30 || s.agree < 0.5*s.n || s.asked < 100 { // a serial port takes long to print
		t.Error("that is too little")
	}
}
