package gate

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/callbuf"
)

// Where device memory is a driver's, a segment is memory that one worker made and that others got of it: who has it holds it, and gives
// it to whoever asks. While nobody holds it its bytes are in the domain's file. Beginning and ending to hold it take as long as
// the driver does, so who does one of them claims the segment meanwhile, and not the lock of the quotas. The dead claim and
// hold nothing.

// KeepTime is how long a worker may take to begin or end to hold so many bytes.
func KeepTime(bytes uint64) time.Duration {
	return 10*time.Second + time.Duration(bytes>>28)*time.Second
}

// CountSegmentsIn says that segments count in whole multiples of that many bytes. All workers of a domain say the same.
func (m *Member) CountSegmentsIn(unit uint64) { m.page.at.segmentUnit.Store(unit) }

// ClaimSegment has nobody else begin or end to hold a segment, until YieldSegment. It waits for who does that now, for as long as
// patience, or until stop says so, and returns false then. One goroutine of a worker may claim a segment at a time.
func (m *Member) ClaimSegment(id uint32, patience time.Duration, stop func() bool) bool {
	h := &m.page.at.holdings[id%Segments]
	for until := Now() + int64(patience); ; {
		by, mine := h.take(m)
		if mine {
			return true
		}
		if stop() || Now() >= until {
			return false
		}
		callbuf.FutexWait(&h.claim, by, lockSlice)
	}
}

// take claims a segment if nobody does who lives, or says who does.
func (h *holding) take(m *Member) (by uint32, mine bool) {
	m.lock()
	defer m.unlock()
	me := uint32(m.index) + 1
	if by = h.claim.Load(); by != 0 && by != me && m.page.claims(by, h.claimer.Load()) {
		return by, false
	}
	h.claimer.Store(uint32(os.Getpid())) // first, so that nobody else's is taken for this one's
	h.claim.Store(me)
	return me, true
}

// claims says whether a worker lives that claims something.
func (p *Page) claims(by, pid uint32) bool {
	return by <= Slots && p.at.slot[by-1].pid.Load() == pid && lives(pid)
}

func lives(pid uint32) bool { return pid != 0 && !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }

// YieldSegment ends that.
func (m *Member) YieldSegment(id uint32) {
	h := &m.page.at.holdings[id%Segments]
	if h.claim.CompareAndSwap(uint32(m.index)+1, 0) {
		callbuf.FutexWake(&h.claim, 1<<30)
	}
}

// SegmentTag is by which workers ask each other for a segment.
func (m *Member) SegmentTag(id uint32) uint64 { return m.page.at.holdings[id%Segments].tag.Load() }

// SegmentHolders is where to ask for a segment: at those other workers that hold it.
func (m *Member) SegmentHolders(id uint32) (all []uint32) {
	m.lock()
	defer m.unlock()
	for i := range m.page.at.taken() {
		s := &m.page.at.slot[i]
		if i != m.index && s.state.Load() == slotJoined && s.has(id%Segments) && lives(s.pid.Load()) {
			all = append(all, s.offers.Load())
		}
	}
	return all
}

// SegmentStored says whether the bytes of a segment are in the domain's file. Where they aren't and nobody holds it they are lost.
func (m *Member) SegmentStored(id uint32) bool {
	return m.page.at.segments[id%Segments].state.Load()&segmentAway == 0
}

// SegmentWanted says whether anybody but this worker can still get at a segment's bytes.
func (m *Member) SegmentWanted(id uint32) bool {
	m.lock()
	defer m.unlock()
	s := m.page.segment(int(id % Segments))
	return s.ID == id && (!s.Removed || s.Attached > int(m.slot.attached[id%Segments].Load()))
}

// HoldSegment notes that this worker holds a segment, for which others may ask it there.
func (m *Member) HoldSegment(id, there uint32) {
	m.lock()
	defer m.unlock()
	state := &m.page.at.segments[id%Segments].state
	m.slot.offers.Store(there)
	m.slot.hold(id%Segments, true)
	state.Store(state.Load() | segmentAway)
}

// LeaveSegment ends that; stored: all of its bytes are in the file.
func (m *Member) LeaveSegment(id uint32, stored bool) {
	m.lock()
	defer m.unlock()
	m.slot.hold(id%Segments, false)
	if state := &m.page.at.segments[id%Segments].state; stored {
		state.Store(state.Load() &^ segmentAway)
	}
}

// has reports whether the worker has the memory of the segment in a place of the table.
func (s *slot) has(place uint32) bool { return s.holds[place/64].Load()>>(place%64)&1 != 0 }

// hold notes that. The caller holds the lock.
func (s *slot) hold(place uint32, yes bool) {
	word := &s.holds[place/64]
	held := word.Load() &^ (1 << (place % 64))
	if yes {
		held |= 1 << (place % 64)
	}
	word.Store(held)
}

func (s *slot) dropHolds() {
	for i := range s.holds {
		s.holds[i].Store(0)
	}
}

// Charge charges what was used beside requests.
func (m *Member) Charge(u accel.Usage) {
	m.charge(ClassOf(u.Class), u, max(u.End-u.Start, 0), Now(), "")
}

// Holds is how long a worker may take to store the segments that it holds, whose bytes might go with it; 0 if it holds none. Any
// goroutine may ask.
func (p *Page) Holds(i int) (patience time.Duration) {
	for k := range p.made() {
		if p.at.slot[i].has(uint32(k)) {
			patience += KeepTime(min(p.at.segments[k].bytes.Load(), SegmentStore))
		}
	}
	return min(patience, KeepTime(SegmentStore))
}

// Holds is that of this worker.
func (m *Member) Holds() time.Duration { return m.page.Holds(m.index) }

// dropHoldings forgets what a dead worker claimed and held.
func (p *Page) dropHoldings(i int) {
	p.at.slot[i].dropHolds()
	for k := range p.at.holdings {
		if h := &p.at.holdings[k]; h.claim.CompareAndSwap(uint32(i)+1, 0) {
			callbuf.FutexWake(&h.claim, 1<<30)
		}
	}
}
