package gate

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// Segments bounds the device segments of a domain, and SegmentStore their total bytes, each rounded up to a multiple of
// SegmentUnit.
const (
	Segments     = 512 // as Gdev has
	SegmentStore = 64 << 30
	SegmentUnit  = 64 << 20

	// LooseSegments bounds the loose ones among them.
	LooseSegments = 16
)

// PrivateKey is the key of segments that GetSegment does not find.
const PrivateKey = 1<<32 - 1

var (
	// ErrNoSegment reports an identifier that is no segment of the domain, or one that was removed.
	ErrNoSegment = errors.New("no such device segment")
	// ErrSegments reports that there is no room for another segment.
	ErrSegments = errors.New("too many device segments")
	// ErrSegmentSize reports a segment smaller than its user expects.
	ErrSegmentSize = errors.New("the device segment is smaller")
)

// Commons is the store of a domain's segments: a file of SegmentStore bytes that count as the accelerator's memory.
type Commons interface {
	// Resize sets how many bytes all segments of the domain take. It returns false and changes nothing if that is more
	// than before and there is no room.
	Resize(bytes uint64) bool
	// Clear zeroes a part of the file.
	Clear(offset, bytes uint64) error
}

// Segment is device memory that the processes of a domain share.
type Segment struct {
	ID       uint32 // not reused for another segment within a long time
	Key      uint32 // PrivateKey: none
	Offset   uint64 // in the file
	Bytes    uint64
	Attached int // number of attachments, by all workers
	Removed  bool
	Loose    bool // it has a secret instead of a key, and ends with its last attachment
}

// The segment table is changed under the lock of the quotas. Its segments count against the quota of device memory. A
// removed segment without attachments stays until it has been cleared.

const (
	segmentUsed    = 1
	segmentRemoved = 2
	segmentLoose   = 4
	segmentAway    = 8 // its bytes are in its holders' device memory, and not in the file
)

// GetSegment returns the segment with a key, or makes one of that many bytes. PrivateKey always makes a segment; 0
// bytes never does.
func (m *Member) GetSegment(c Commons, key uint32, bytes uint64) (Segment, error) {
	m.lock()
	defer m.unlock()
	p := m.page
	p.clearSegments(c)
	all := p.segments()
	if i := slices.IndexFunc(all, func(s Segment) bool { return key != PrivateKey && s.Key == key && !s.Removed && !s.Loose }); i >= 0 {
		if bytes > all[i].Bytes {
			return Segment{}, ErrSegmentSize
		}
		return all[i], nil
	}
	if bytes == 0 {
		return Segment{}, ErrNoSegment
	}
	return p.makeSegment(c, all, key, bytes, segmentUsed)
}

// MakeLoose makes a segment that this worker has attached, and that other workers can attach with its secret. It ends
// with its last attachment.
func (m *Member) MakeLoose(c Commons, bytes uint64) (Segment, error) {
	m.lock()
	defer m.unlock()
	p := m.page
	p.clearSegments(c)
	all := p.segments()
	if n := slices.DeleteFunc(slices.Clone(all), func(s Segment) bool { return !s.Loose }); len(n) >= LooseSegments {
		return Segment{}, ErrSegments
	}
	made, err := p.makeSegment(c, all, PrivateKey, bytes, segmentUsed|segmentLoose)
	if err != nil {
		return made, err
	}
	i := int(made.ID % Segments)
	s := &p.at.segments[i]
	s.setSecret(rand.Uint64())
	m.slot.attached[i].Add(1)
	return p.segment(i), nil
}

// AttachLoose adds an attachment of a loose segment by this worker.
func (m *Member) AttachLoose(id uint32, secret uint64) (Segment, error) {
	m.lock()
	defer m.unlock()
	if err := m.page.findLoose(id); err != nil {
		return Segment{}, err
	}
	if m.page.at.segments[id%Segments].secret() != secret {
		return Segment{}, ErrNoSegment
	}
	m.slot.attached[id%Segments].Add(1)
	return m.page.segment(int(id % Segments)), nil
}

// LooseSecret returns the secret with which a loose segment can be attached.
func (m *Member) LooseSecret(id uint32) (uint64, error) {
	m.lock()
	defer m.unlock()
	return m.page.at.segments[id%Segments].secret(), m.page.findLoose(id)
}

func (p *Page) findLoose(id uint32) error {
	s := p.segment(int(id % Segments))
	if s.ID != id || !s.Loose || s.Attached == 0 {
		return ErrNoSegment
	}
	return nil
}

func (p *Page) makeSegment(c Commons, all []Segment, key uint32, bytes uint64, state uint32) (Segment, error) {
	offset, ok := findPlace(all, bytes)
	index := p.freeSegment()
	if !ok || index < 0 {
		return Segment{}, ErrSegments
	}
	counts := p.counted(bytes)
	used, quota := p.Memory(DeviceMemory)
	if counts > quota || used > quota-counts || !c.Resize(p.SegmentBytes()+counts) {
		return Segment{}, ErrQuota
	}
	s := &p.at.segments[index]
	s.serial.Store((s.serial.Load() + 1) & (1<<31/Segments - 1))
	s.key.Store(key)
	s.offset.Store(offset)
	s.bytes.Store(bytes)
	p.at.holdings[index].tag.Store(rand.Uint64())
	s.state.Store(state)
	return p.segment(index), nil
}

func (p *Page) freeSegment() int {
	for i := range p.at.segments {
		if p.at.segments[i].state.Load() == 0 {
			p.at.segmentsTop.Store(max(p.at.segmentsTop.Load(), uint32(i+1)))
			return i
		}
	}
	return -1
}

// made returns the part of the table that may have segments.
func (p *Page) made() []segment { return p.at.segments[:min(p.at.segmentsTop.Load(), Segments)] }

// findPlace returns the lowest offset in the file with room for bytes.
func findPlace(all []Segment, bytes uint64) (offset uint64, ok bool) {
	if bytes > SegmentStore {
		return 0, false
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b Segment) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, s := range all {
		if s.Offset-offset >= bytes {
			break
		}
		offset = (s.Offset + s.Bytes + SegmentUnit - 1) &^ (SegmentUnit - 1)
	}
	return offset, bytes <= SegmentStore-offset
}

// counted returns bytes rounded up to the segment unit. Both numbers are cut to SegmentStore, because the daemon
// reports the sum to the accelerator.
func (p *Page) counted(bytes uint64) uint64 {
	unit := min(max(p.at.segmentUnit.Load(), 1), SegmentStore)
	return (min(bytes, SegmentStore) + unit - 1) / unit * unit
}

// AttachSegment adds an attachment by this worker.
func (m *Member) AttachSegment(id uint32) (Segment, error) {
	m.lock()
	defer m.unlock()
	s, err := m.page.find(id)
	if err != nil {
		return s, err
	}
	m.slot.attached[id%Segments].Add(1)
	return m.page.segment(int(id % Segments)), nil
}

// DetachSegment removes an attachment by this worker.
func (m *Member) DetachSegment(c Commons, id uint32) {
	m.lock()
	defer m.unlock()
	if n := &m.slot.attached[id%Segments]; n.Load() > 0 {
		n.Store(n.Load() - 1)
	}
	m.page.clearSegments(c)
}

// RemoveSegment prevents further attachments of a segment. It ends with its last attachment.
func (m *Member) RemoveSegment(c Commons, id uint32) (Segment, error) {
	m.lock()
	defer m.unlock()
	s, err := m.page.find(id)
	if err == nil {
		state := &m.page.at.segments[id%Segments].state
		state.Store(state.Load() | segmentRemoved)
		m.page.clearSegments(c)
	}
	return s, err
}

// SegmentOf returns a segment's description.
func (m *Member) SegmentOf(id uint32) (Segment, error) {
	m.lock()
	defer m.unlock()
	return m.page.find(id)
}

// ErrLocked reports that a worker held the page's lock for longer than the daemon waits.
var ErrLocked = errors.New("gate: a worker holds the lock of the domain's page")

// ClearSegments frees removed segments that no living worker has attached, and reports the remaining bytes to c again:
// a worker that was killed just before or after it changed the table has left another number. It waits at most patience
// for the page's lock, and then returns ErrLocked. Any goroutine may call it, also while another one frees the Page. It
// can take half a second for a GiB, so the caller must hold no lock of the daemon.
func (p *Page) ClearSegments(c Commons, patience time.Duration) error {
	until := Now() + int64(patience) // the wait for another caller counts
	p.clearing.Lock()
	defer p.clearing.Unlock()
	if p.at == nil {
		return nil
	}
	if !p.lock(daemonHolder, until) {
		return ErrLocked
	}
	defer p.unlock()
	p.clearSegments(c)
	c.Resize(p.SegmentBytes())
	return nil
}

// SegmentBytes returns the accounted bytes of the domain's segments.
func (p *Page) SegmentBytes() (sum uint64) {
	made := p.made()
	for i := range made {
		if s := &made[i]; s.state.Load() != 0 {
			sum += p.counted(s.bytes.Load())
		}
	}
	return sum
}

func (p *Page) find(id uint32) (Segment, error) {
	s := p.segment(int(id % Segments))
	if s.ID != id || s.Removed || s.Loose || p.at.segments[id%Segments].state.Load() == 0 {
		return Segment{}, ErrNoSegment
	}
	return s, nil
}

// segments returns all segments, including the removed ones.
func (p *Page) segments() (all []Segment) {
	for i := range p.made() {
		if p.at.segments[i].state.Load() != 0 {
			all = append(all, p.segment(i))
		}
	}
	return all
}

func (p *Page) segment(i int) Segment {
	s := &p.at.segments[i]
	out := Segment{
		ID: s.serial.Load()*Segments + uint32(i), Key: s.key.Load(), Offset: s.offset.Load(), Bytes: s.bytes.Load(),
		Removed: s.state.Load()&segmentRemoved != 0, Loose: s.state.Load()&segmentLoose != 0,
	}
	if out.Loose {
		out.Key = PrivateKey
	}
	for k := range p.at.taken() {
		out.Attached += int(p.at.slot[k].attached[i].Load())
	}
	return out
}

// clearSegments frees removed segments that have no attachment. The caller holds the lock.
func (p *Page) clearSegments(c Commons) {
	for i := range p.made() {
		if p.at.segments[i].state.Load() == 0 {
			continue
		}
		s := p.segment(i)
		if !s.Removed && !s.Loose || s.Attached > 0 || c.Clear(s.Offset, s.Bytes) != nil {
			continue
		}
		p.at.segments[i].state.Store(0)
		c.Resize(p.SegmentBytes())
	}
}
