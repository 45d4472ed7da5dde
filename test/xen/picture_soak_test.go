//go:build soak

package xen

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSoakXenPicture: the picture that `pegasus trace --perfetto` draws has the vCPUs of domUs, also of one in which
// no program computes, and no two at once on one CPU.
func TestSoakXenPicture(t *testing.T) {
	h := crowd(t, queues)
	h.Run("pegasus trace --perfetto /tmp/picture --seconds 4")
	var picture struct {
		Events []struct {
			Name  string  `json:"name"`
			Phase string  `json:"ph"`
			At    float64 `json:"ts"`
			For   float64 `json:"dur"`
			Group int     `json:"pid"`
			Line  int     `json:"tid"`
			Args  struct {
				Name string `json:"name"`
			} `json:"args"`
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal([]byte(h.Run("cat /tmp/picture")), &picture); err != nil {
		t.Fatal(err)
	}
	lines, ran, until := map[int]string{}, map[string]float64{}, 0.0
	for _, e := range picture.Events {
		switch {
		case e.Name == "thread_name":
			lines[e.Line] = e.Args.Name
		case e.Phase == "X" && strings.Contains(e.Name, " vCPU "):
			if lines[e.Line] != "CPU 1" {
				t.Errorf("%s runs on %q", e.Name, lines[e.Line])
			}
			if e.At < until-1 {
				t.Errorf("%s begins to run at %.0f µs, while another runs until %.0f", e.Name, e.At, until)
			}
			until = max(until, e.At+e.For)
			ran[e.Name] += e.For / 1e6
		}
	}
	t.Logf("in a picture of 4 s there ran %v", ran)
	var sum float64
	for _, name := range []string{"one", "two", "spins"} {
		part := ran[name+" vCPU 0"]
		if sum += part; part < 0.5 {
			t.Errorf("%s ran for %.1f s", name, part)
		}
	}
	if sum < 3 {
		t.Errorf("all together ran for %.1f of 4 s", sum)
	}
}
