package linux

import (
	"slices"
	"testing"
	"time"

	"pegasus/vcpu"
)

func TestPieces(t *testing.T) {
	for _, c := range []struct {
		name  string
		state vcpu.VCPUState
		exact bool
		since int64
		ran   time.Duration
		was   bool
		want  []piece
	}{
		{"ran all the time", vcpu.Running, true, 50, 100, true, []piece{{100, 200}}},
		{"began", vcpu.Running, true, 170, 30, false, []piece{{170, 200}}},
		{"ended", vcpu.Blocked, true, 130, 30, true, []piece{{100, 130}}},
		{"ended, and ran again", vcpu.Running, true, 180, 50, true, []piece{{100, 130}, {180, 200}}},
		{"ran in between", vcpu.Runnable, true, 160, 10, false, []piece{{150, 160}}},
		{"seen to end as it was looked at", vcpu.Blocked, true, 100, 20, true, nil},
		{"rested", vcpu.Blocked, true, 20, 0, false, nil},
		{"more than there was time", vcpu.Running, true, 20, 500, false, []piece{{100, 200}}},
		{"nobody noted when", vcpu.Blocked, false, 0, 40, false, []piece{{160, 200}}},
	} {
		th := thread{exact: c.exact, since: c.since, done: runTimes{ran: c.ran}}
		th.vcpu.State = c.state
		if got := th.pieces(100, 200, c.was); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}
