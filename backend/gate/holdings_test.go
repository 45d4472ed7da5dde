package gate

import (
	"errors"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func never() bool { return false }

// dead returns the pid of an ended process.
func dead(t *testing.T) uint32 {
	t.Helper()
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return uint32(c.Process.Pid)
}

func made(t *testing.T, m *Member) Segment {
	t.Helper()
	s, err := m.GetSegment(&bank{room: 1 << 40}, 7, 4096)
	if err == nil {
		s, err = m.AttachSegment(s.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// One worker at a time has the claim on a segment. A waiting worker gives up after its patience or when its stop
// returns true, and takes over the claim of a dead worker, whichever worker has that slot by then.
func TestClaimSegment(t *testing.T) {
	p, workers := segmented(t)
	one, other := workers[0], workers[1]
	s := made(t, one)
	if !one.ClaimSegment(s.ID, 0, never) {
		t.Fatal("what nobody has claimed can't be claimed")
	}
	if other.ClaimSegment(s.ID, 3*lockSlice, never) {
		t.Error("two have claimed it")
	}
	began := time.Now()
	if other.ClaimSegment(s.ID, time.Hour, func() bool { return time.Since(began) > 2*lockSlice }) {
		t.Error("two have claimed it")
	}
	other.YieldSegment(s.ID) // which has no claim
	if other.ClaimSegment(s.ID, 0, never) {
		t.Error("another one yields what one has claimed")
	}
	another, err := one.GetSegment(&bank{room: 1 << 40}, 8, 4096)
	if err != nil || !other.ClaimSegment(another.ID, 0, never) {
		t.Errorf("another segment can't be claimed: %v", err)
	}
	claimed := make(chan bool)
	go func() { claimed <- other.ClaimSegment(s.ID, time.Hour, never) }()
	time.Sleep(2 * lockSlice)
	one.YieldSegment(s.ID)
	if !<-claimed {
		t.Error("who waits doesn't get it")
	}

	p.at.holdings[s.ID%Segments].claimer.Store(dead(t)) // another worker has its slot now
	if !one.ClaimSegment(s.ID, 0, never) {
		t.Error("the dead keep a claim")
	}
	pid := p.at.slot[0].pid.Load()
	gone := dead(t)
	p.at.slot[0].pid.Store(gone)
	p.at.holdings[s.ID%Segments].claimer.Store(gone)
	if !other.ClaimSegment(s.ID, time.Minute, never) {
		t.Error("the dead keep a claim")
	}
	p.at.slot[0].pid.Store(pid)
	p.Reap(1)
	if !one.ClaimSegment(s.ID, 0, never) {
		t.Error("a worker that was reaped keeps a claim")
	}
	p.at.holdings[s.ID%Segments].claim.Store(Slots + 9) // an invalid value
	if !one.ClaimSegment(s.ID, 0, never) {
		t.Error("nobody can claim what nobody has claimed")
	}
}

// Claims exclude each other, however many workers compete.
func TestClaimsExclude(t *testing.T) {
	p, workers := segmented(t)
	for range 6 {
		i, err := p.TakeSlot()
		if err != nil {
			t.Fatal(err)
		}
		workers[0].page.at.slot[i].state.Store(slotTaken)
	}
	s := made(t, workers[0])
	var all sync.WaitGroup
	var inside atomic.Int32
	for i := range 8 {
		m := Join(p, workers[0].bell, i)
		all.Go(func() {
			for range 200 {
				if !m.ClaimSegment(s.ID, time.Minute, never) {
					t.Error("not within a minute")
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have claimed it", n)
				}
				inside.Add(-1)
				m.YieldSegment(s.ID)
			}
		})
	}
	all.Wait()
}

// The live holders of a segment are listed; its bytes are in the file when the last holder has stored them.
func TestHoldSegment(t *testing.T) {
	p, workers := segmented(t)
	one, other := workers[0], workers[1]
	s := made(t, one)
	if one.SegmentTag(s.ID) == 0 || !one.SegmentStored(s.ID) || len(other.SegmentHolders(s.ID)) != 0 || p.Holds(0) != 0 {
		t.Error("a new segment is held")
	}
	one.HoldSegment(s.ID, 1234)
	if got := other.SegmentHolders(s.ID); !slices.Equal(got, []uint32{1234}) || other.SegmentStored(s.ID) || p.Holds(0) != KeepTime(4096) {
		t.Errorf("it is held by %v", got)
	}
	if got := one.SegmentHolders(s.ID); len(got) != 0 {
		t.Errorf("one asks itself: %v", got)
	}
	if !one.SegmentWanted(s.ID) {
		t.Error("nobody wants what was not removed")
	}
	if _, err := other.AttachSegment(s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other.RemoveSegment(&bank{}, s.ID); err != nil {
		t.Fatal(err)
	}
	if other.SegmentStored(s.ID) || !one.SegmentWanted(s.ID) {
		t.Error("by being removed it is stored, or wanted no more by who has it attached")
	}
	other.HoldSegment(s.ID, 99)
	one.LeaveSegment(s.ID, false)
	if got := one.SegmentHolders(s.ID); !slices.Equal(got, []uint32{99}) || p.Holds(0) != 0 || one.SegmentStored(s.ID) {
		t.Errorf("it is held by %v", got)
	}
	p.at.slot[1].pid.Store(dead(t))
	if got := one.SegmentHolders(s.ID); len(got) != 0 {
		t.Errorf("the dead hold it: %v", got)
	}
	p.Reap(1)
	if one.SegmentWanted(s.ID) || p.Holds(1) != 0 {
		t.Error("the dead want it")
	}
	one.LeaveSegment(s.ID, true)
	if !one.SegmentStored(s.ID) {
		t.Error("it isn't stored")
	}
	if i, err := p.TakeSlot(); i != 1 || err != nil {
		t.Fatal(i, err)
	}
	p.at.slot[1].hold(s.ID%Segments, true) // of a worker that an older daemon has reaped
	Join(p, other.bell, 1)
	if got := one.SegmentHolders(s.ID); len(got) != 0 {
		t.Errorf("a worker that has come holds it: %v", got)
	}
}

// Segments count in whole multiples of the unit: in the quota, for the accelerator, and in recomputed sums.
func TestSegmentUnit(t *testing.T) {
	const page = 2 << 20
	p, workers := segmented(t)
	m := workers[0]
	m.CountSegmentsIn(page)
	p.SetQuota(DeviceMemory, 3*page+4096)
	b := &bank{room: 1 << 40}
	one, err := m.GetSegment(b, 1, 4096)
	if err != nil || one.Bytes != 4096 {
		t.Fatal(one, err)
	}
	two, err := m.GetSegment(b, 2, page+4096)
	if err != nil {
		t.Fatal(err)
	}
	counts := func(pages uint64) {
		t.Helper()
		if used, _ := p.Memory(DeviceMemory); used != pages*page || b.held != used || p.SegmentBytes() != used {
			t.Errorf("%d bytes are used, the accelerator's are %d; want %d pages", used, b.held, pages)
		}
	}
	counts(3)
	if _, err := m.GetSegment(b, 3, 4096); !errors.Is(err, ErrQuota) {
		t.Errorf("a page beyond the quota: %v", err)
	}
	if _, err := m.GetSegment(b, 1, 4097); !errors.Is(err, ErrSegmentSize) {
		t.Errorf("it has got more bytes than it was made with: %v", err)
	}
	for i, s := range []Segment{one, two} {
		if _, err := m.RemoveSegment(b, s.ID); err != nil {
			t.Fatal(err)
		}
		counts(uint64(2 - 2*i))
	}
}
