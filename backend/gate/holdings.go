package gate

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/callbuf"
)

// Where a driver owns the device memory, a segment is memory that one worker allocated and exported to other workers. A
// worker that has the memory is a holder, and exports it to each worker that requests it. While there is no holder, the
// segment's bytes are in the domain's file. Acquiring and releasing the memory take as long as the driver's calls, so
// the worker claims the segment for that time instead of holding the lock of the quotas. The claims and holds of dead
// workers are void.

// KeepTime returns how long a worker may take to acquire or release a segment of that many bytes.
func KeepTime(bytes uint64) time.Duration {
	return 10*time.Second + time.Duration(bytes>>28)*time.Second
}

// CountSegmentsIn sets the unit in bytes: in the accounts segments are rounded up to its multiples. All workers of a
// domain set the same unit.
func (m *Member) CountSegmentsIn(unit uint64) { m.page.at.segmentUnit.Store(unit) }

// ClaimSegment claims a segment: no other worker acquires or releases it until YieldSegment. It blocks while another
// live worker has the claim, and returns false after patience or when stop returns true. One goroutine of a worker may
// claim a segment at a time.
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

// take claims the segment unless another live worker holds the claim; then it returns that worker's slot, plus 1.
func (h *holding) take(m *Member) (by uint32, mine bool) {
	m.lock()
	defer m.unlock()
	me := uint32(m.index) + 1
	if by = h.claim.Load(); by != 0 && by != me && m.page.claims(by, h.claimer.Load()) {
		return by, false
	}
	h.claimer.Store(uint32(os.Getpid())) // first, so that another worker's claim is not taken for this one's
	h.claim.Store(me)
	return me, true
}

// claims reports whether the worker that holds a claim is alive.
func (p *Page) claims(by, pid uint32) bool {
	return by <= Slots && p.at.slot[by-1].pid.Load() == pid && lives(pid)
}

func lives(pid uint32) bool { return pid != 0 && !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }

// YieldSegment releases this worker's claim on a segment.
func (m *Member) YieldSegment(id uint32) {
	h := &m.page.at.holdings[id%Segments]
	if h.claim.CompareAndSwap(uint32(m.index)+1, 0) {
		callbuf.FutexWake(&h.claim, 1<<30)
	}
}

// SegmentTag returns the tag by which workers request a segment from each other.
func (m *Member) SegmentTag(id uint32) uint64 { return m.page.at.holdings[id%Segments].tag.Load() }

// SegmentHolders returns the export addresses of the other live workers that hold a segment.
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

// SegmentStored reports whether a segment's bytes are in the domain's file. If they are not and no worker holds the
// segment, they are lost.
func (m *Member) SegmentStored(id uint32) bool {
	return m.page.at.segments[id%Segments].state.Load()&segmentAway == 0
}

// SegmentWanted reports whether any process but this worker can still reach a segment's bytes.
func (m *Member) SegmentWanted(id uint32) bool {
	m.lock()
	defer m.unlock()
	s := m.page.segment(int(id % Segments))
	return s.ID == id && (!s.Removed || s.Attached > int(m.slot.attached[id%Segments].Load()))
}

// HoldSegment records that this worker holds a segment, and the address at which other workers request it.
func (m *Member) HoldSegment(id, there uint32) {
	m.lock()
	defer m.unlock()
	state := &m.page.at.segments[id%Segments].state
	m.slot.offers.Store(there)
	m.slot.hold(id%Segments, true)
	state.Store(state.Load() | segmentAway)
}

// LeaveSegment records that this worker no longer holds a segment; stored: all of its bytes are in the file.
func (m *Member) LeaveSegment(id uint32, stored bool) {
	m.lock()
	defer m.unlock()
	m.slot.hold(id%Segments, false)
	if state := &m.page.at.segments[id%Segments].state; stored {
		state.Store(state.Load() &^ segmentAway)
	}
}

// has reports whether the worker holds the segment at an index of the table.
func (s *slot) has(place uint32) bool { return s.holds[place/64].Load()>>(place%64)&1 != 0 }

// hold records whether the worker holds the segment at an index of the table. The caller holds the lock.
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

// Charge charges engine use outside requests.
func (m *Member) Charge(u accel.Usage) {
	m.charge(ClassOf(u.Class), u, max(u.End-u.Start, 0), Now(), "")
}

// Holds returns how long worker i may take to store the segments that it holds. Their bytes could be lost with the
// worker. The result is 0 if it holds none. Any goroutine may call it.
func (p *Page) Holds(i int) (patience time.Duration) {
	for k := range p.made() {
		if p.at.slot[i].has(uint32(k)) {
			patience += KeepTime(min(p.at.segments[k].bytes.Load(), SegmentStore))
		}
	}
	return min(patience, KeepTime(SegmentStore))
}

// Holds returns Page.Holds of this worker.
func (m *Member) Holds() time.Duration { return m.page.Holds(m.index) }

// dropHoldings clears a dead worker's claims and holds.
func (p *Page) dropHoldings(i int) {
	p.at.slot[i].dropHolds()
	for k := range p.at.holdings {
		if h := &p.at.holdings[k]; h.claim.CompareAndSwap(uint32(i)+1, 0) {
			callbuf.FutexWake(&h.claim, 1<<30)
		}
	}
}
