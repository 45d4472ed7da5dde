package hub

import (
	"testing"
	"time"
)

// The maximum number of processes may come at once, then a limited number each second.
func TestPace(t *testing.T) {
	s, came := session{}, 0
	begin := time.Now()
	for ms := range 2000 {
		for now := begin.Add(time.Duration(ms) * time.Millisecond); !s.paced.After(now); came++ {
			s.pace(now)
		}
	}
	if want := maxProcesses + int(2*time.Second/openEvery); came < want-1 || came > want+1 {
		t.Errorf("%d processes came within 2 s, want %d", came, want)
	}
}
