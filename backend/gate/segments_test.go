package gate

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pegasus/test/seeds"
)

// bank is a Commons of so many bytes that records the cleared offsets.
type bank struct {
	room, held uint64
	cleared    []uint64 // offsets
	fails      bool
}

func (b *bank) Resize(bytes uint64) bool {
	if bytes > b.held && bytes > b.room {
		return false
	}
	b.held = bytes
	return true
}

func (b *bank) Clear(offset, bytes uint64) error {
	if b.fails {
		return errors.New("broken")
	}
	b.cleared = append(b.cleared, offset)
	return nil
}

// segmented returns a page with two workers.
func segmented(t *testing.T) (*Page, [2]*Member) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Free() })
	bell, err := NewBell()
	if err != nil {
		t.Fatal(err)
	}
	var all [2]*Member
	for i := range all {
		if _, err := p.TakeSlot(); err != nil {
			t.Fatal(err)
		}
		all[i] = Join(p, bell, i)
	}
	return p, all
}

// If a worker is killed before it attaches its loose segment, the segment belongs to no worker, and is freed.
func TestLooseOfNobody(t *testing.T) {
	p, workers := segmented(t)
	b := &bank{room: 1 << 40}
	m := workers[0]
	m.lock()
	_, err := p.makeSegment(b, p.segments(), PrivateKey, 1<<20, segmentUsed|segmentLoose)
	m.unlock()
	if err != nil {
		t.Fatal(err)
	}
	p.Reap(0)
	p.ClearSegments(b, time.Minute)
	if used, _ := p.Memory(DeviceMemory); used != 0 || len(p.segments()) != 0 {
		t.Errorf("%d bytes of it count: %+v", used, p.segments())
	}
}

// Random workers make, find, attach, remove and detach segments, and die: no two segments overlap, the quota and the
// accelerator count exactly the existing segments, and a removed segment without attachments is cleared and freed.
func TestRandomSegments(t *testing.T) {
	seed := seeds.Fixed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	p, workers := segmented(t)
	const quota = 900 << 20
	p.SetQuota(DeviceMemory, quota)
	b := &bank{room: 800 << 20}
	attached := map[uint32][2]int{}
	known := map[uint32]Segment{}
	removed := map[uint32]bool{}
	for range 4000 {
		w := r.IntN(2)
		m := workers[w]
		var ids []uint32
		for id := range known {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		some := uint32(r.IntN(2000))
		if len(ids) > 0 && r.IntN(8) > 0 {
			some = ids[r.IntN(len(ids))]
		}
		_, there := known[some]
		gone := !there || removed[some]
		switch r.IntN(6) {
		case 0, 1:
			key := uint32(r.IntN(20)) - 1 // PrivateKey among them, and 0
			s, err := m.GetSegment(b, key, r.Uint64N(200)<<20)
			if err == nil {
				if k, old := known[s.ID]; old && (k.Key != key || key == PrivateKey) || !old && s.Key != key || removed[s.ID] {
					t.Fatalf("key %d: %+v", key, s)
				}
				known[s.ID] = s
			}
		case 2:
			s, err := m.AttachSegment(some)
			if (err == nil) == gone {
				t.Fatalf("attach %d: %+v, %v", some, s, err)
			}
			if err == nil {
				a := attached[some]
				a[w]++
				attached[some] = a
			}
		case 3:
			if a := attached[some]; a[w] > 0 {
				a[w]--
				attached[some] = a
				m.DetachSegment(b, some)
			}
		case 4:
			if _, err := m.RemoveSegment(b, some); (err == nil) == gone {
				t.Fatalf("remove %d: %v", some, err)
			}
			removed[some] = removed[some] || !gone
		case 5:
			if r.IntN(10) > 0 {
				continue
			}
			for id, a := range attached { // the worker dies, another joins
				a[w] = 0
				attached[id] = a
			}
			p.Reap(w)
			p.ClearSegments(b, time.Minute)
			if i, err := p.TakeSlot(); i != w || err != nil {
				t.Fatal(i, err)
			}
			workers[w] = Join(p, m.bell, w)
		}
		for id := range known {
			if a := attached[id]; removed[id] && a == [2]int{} {
				delete(known, id)
				delete(removed, id)
			}
		}
		checkSegments(t, p, b, known, attached)
	}
}

func checkSegments(t *testing.T, p *Page, b *bank, known map[uint32]Segment, attached map[uint32][2]int) {
	t.Helper()
	var sum uint64
	for id, s := range known {
		got := p.segment(int(id % Segments))
		if a := attached[id]; got.ID != id || got.Bytes != s.Bytes || got.Offset != s.Offset || got.Attached != a[0]+a[1] {
			t.Fatalf("%+v, want %+v attached %v", got, s, a)
		}
		for other, o := range known {
			if other != id && s.Offset < o.Offset+o.Bytes && o.Offset < s.Offset+s.Bytes {
				t.Fatalf("%+v and %+v", s, o)
			}
		}
		sum += s.Bytes
	}
	used, quota := p.Memory(DeviceMemory)
	if used != sum || b.held != sum || p.SegmentBytes() != sum || sum > quota || sum > b.room {
		t.Fatalf("%d bytes are used, %d of the accelerator's, %d are there", used, b.held, sum)
	}
}

// A segment that cannot be cleared stays, and counts.
func TestSegmentsThatCantBeCleared(t *testing.T) {
	p, workers := segmented(t)
	b := &bank{room: 1 << 30, fails: true}
	s, err := workers[0].GetSegment(b, 1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workers[1].RemoveSegment(b, s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := workers[0].AttachSegment(s.ID); !errors.Is(err, ErrNoSegment) {
		t.Errorf("%v, want %v", err, ErrNoSegment)
	}
	if p.SegmentBytes() != 4096 || b.held != 4096 {
		t.Errorf("%d bytes are left, %d count", p.SegmentBytes(), b.held)
	}
	b.fails = false
	if p.ClearSegments(b, time.Minute); p.SegmentBytes() != 0 || b.held != 0 || len(b.cleared) != 1 {
		t.Errorf("%d bytes are left, %d count", p.SegmentBytes(), b.held)
	}
}

// A worker may be killed after it changed the accelerator's count and before it changed the table, or the other way
// round: after the daemon has reaped it, the count matches the table.
func TestKilledBetweenCountingAndTable(t *testing.T) {
	p, workers := segmented(t)
	b := &bank{room: 1 << 30}
	kept, err := workers[0].GetSegment(b, 1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(c Commons){
		"makes": func(c Commons) { workers[1].GetSegment(c, 2, 8192) },
		"frees": func(c Commons) {
			s, err := workers[1].GetSegment(b, 3, 8192)
			if err != nil {
				t.Fatal(err)
			}
			workers[1].RemoveSegment(c, s.ID)
		},
	} {
		die(do, b, what == "makes")
		if b.held != 4096+8192 {
			t.Fatalf("%s: %d bytes count after the death", what, b.held)
		}
		p.Reap(1)
		p.ClearSegments(b, time.Minute)
		if used, _ := p.Memory(DeviceMemory); used != kept.Bytes || p.SegmentBytes() != kept.Bytes || b.held != kept.Bytes {
			t.Errorf("%s: %d bytes are used, %d of the accelerator's, %d are there, want %d", what, used, b.held, p.SegmentBytes(), kept.Bytes)
		}
	}
}

// mortal is a bank with a caller that dies when it reports the size.
type mortal struct {
	*bank
	counts bool // before it dies
}

func (m mortal) Resize(bytes uint64) bool {
	if m.counts {
		m.bank.Resize(bytes)
	}
	panic("killed")
}

func die(do func(Commons), b *bank, counts bool) {
	defer func() { recover() }()
	do(mortal{b, counts})
}

func TestFindPlace(t *testing.T) {
	const u = SegmentUnit
	for _, c := range []struct {
		all   []Segment
		bytes uint64
		want  uint64
		ok    bool
	}{
		{nil, 1, 0, true},
		{nil, SegmentStore, 0, true},
		{nil, SegmentStore + 1, 0, false},
		{nil, ^uint64(0), 0, false},
		{[]Segment{{Offset: 0, Bytes: 1}}, 1, u, true},
		{[]Segment{{Offset: 0, Bytes: u + 1}}, 1, 2 * u, true},
		{[]Segment{{Offset: 3 * u, Bytes: 1}, {Offset: 0, Bytes: u}}, 2 * u, u, true},
		{[]Segment{{Offset: 3 * u, Bytes: 1}, {Offset: 0, Bytes: u}}, 2*u + 1, 4 * u, true},
		{[]Segment{{Offset: SegmentStore - u, Bytes: u}}, SegmentStore - u, 0, true},
		{[]Segment{{Offset: SegmentStore - u, Bytes: u}}, SegmentStore - u + 1, 0, false},
	} {
		if got, ok := findPlace(c.all, c.bytes); ok != c.ok || ok && got != c.want {
			t.Errorf("%d bytes beside %+v: %d, %v, want %d, %v", c.bytes, c.all, got, ok, c.want, c.ok)
		}
	}
}
