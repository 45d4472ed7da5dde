package worker

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"pegasus/cuda"
)

func TestOrderLimitsKernels(t *testing.T) {
	e := employ(t, nil).serve()
	e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
	for _, o := range []Order{{}, {KernelTimeout: time.Second}} {
		if err := SendOrder(e.daemon, o); err != nil {
			t.Fatal(err)
		}
	}
	e.end()
	if p := e.g.Poison(); cuda.Result(p) != cuda.ErrorLaunchTimeout {
		t.Errorf("poison %d", p)
	}
}

// A running worker's log adopts another level.
func TestOrderChangesLogLevel(t *testing.T) {
	for level, want := range map[string]bool{"": false, "loud": false, "warn": true} {
		e := employ(t, func(j *Job, _ *Files) { j.LogLevel = "error" }).serve()
		e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
		for _, o := range []Order{{LogLevel: level}, {KernelTimeout: time.Second}} {
			if err := SendOrder(e.daemon, o); err != nil {
				t.Fatal(err)
			}
		}
		e.end()
		if got := strings.Contains(e.log.String(), "session dropped"); got != want || !strings.Contains(e.log.String(), "worker ended") {
			t.Errorf("%q: a warning is in the log: %v, want %v: %s", level, got, want, e.log)
		}
	}
}

// spinWord is the offset in the segment's header of the time for which a guest's threads may spin.
const spinWord = 0x1c0

func TestSpinTime(t *testing.T) {
	for _, spin := range []time.Duration{0, 70 * time.Microsecond} {
		want := spin
		if runtime.NumCPU() == 1 {
			want = 0 // the awaited process could not run meanwhile
		}
		e := employ(t, func(j *Job, _ *Files) { j.SpinTime = spin }).serve()
		e.want(0, cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{})
		if got := time.Duration(le.Uint32(e.mem[spinWord:])); got != want {
			t.Errorf("the guest may spin for %v, want %v", got, want)
		}
	}
}
