package worker

import (
	"runtime"
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
