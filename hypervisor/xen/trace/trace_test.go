package trace

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pegasus/hypervisor/xen/control"
)

// fake is a hypervisor with trace buffers of two CPUs, 0 and 2.
type fake struct {
	says   control.Tracing
	on     bool
	calls  []string
	memory map[uint64][]byte // by its first frame
	maps   int
}

const (
	tableFrame = 1000
	fakePages  = 2
)

func newFake(made bool) *fake {
	f := &fake{says: control.Tracing{Events: everything}, memory: make(map[uint64][]byte)}
	if made {
		f.make()
	}
	return f
}

func (f *fake) make() {
	f.says.Frame, f.says.InfoBytes = tableFrame, 4096
	table := make([]byte, 4096)
	const first = 4
	le.PutUint16(table, fakePages)
	for cpu, at := range map[int]int{0: first, 2: first + fakePages} {
		le.PutUint16(table[2+2*cpu:], uint16(at))
		for i := range fakePages {
			le.PutUint32(table[4*(at+i):], uint32(10*cpu+i+1))
		}
		f.memory[uint64(10*cpu+1)] = make([]byte, fakePages*4096)
	}
	f.memory[tableFrame] = table
}

func (f *fake) Tracing() (control.Tracing, error) { return f.says, nil }
func (f *fake) TraceEvents(mask uint32) error {
	f.says.Events = mask
	f.calls = append(f.calls, "events")
	return nil
}
func (f *fake) TraceCPUs() error {
	f.calls = append(f.calls, "cpus")
	return nil
}
func (f *fake) TraceSize(int) error {
	if f.says.Frame != 0 {
		return errors.New("one size only")
	}
	f.make()
	f.on = true
	f.calls = append(f.calls, "size")
	return nil
}
func (f *fake) Trace(on bool) error {
	f.on = on
	return nil
}
func (f *fake) Map(domain uint16, frames []uint64, write bool) ([]byte, error) {
	mem := f.memory[frames[0]]
	if domain != hypervisor || mem == nil || len(mem) != 4096*len(frames) {
		return nil, errors.New("no such memory")
	}
	f.maps++
	return mem, nil
}
func (f *fake) Unmap([]byte) error {
	f.maps--
	return nil
}

// note writes a record to a buffer as Xen does, if there is room.
func note(mem []byte, r *Record) bool {
	size := uint32(len(mem) - ringHeader)
	from, to := word(mem, consumed).Load(), word(mem, produced).Load()
	used := (to + 2*size - from) % (2 * size)
	b := Append(nil, r)
	if uint32(len(b)) > size-used {
		return false
	}
	for i, c := range b {
		mem[ringHeader+(to+uint32(i))%size] = c
	}
	word(mem, produced).Store((to + uint32(len(b))) % (2 * size))
	return true
}

func open(t *testing.T, f *fake) *Buffers {
	t.Helper()
	b, err := Open(f, f, AllSchedule, 32)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(b *Buffers) (all []Record, lost int) {
	b.Read(func(cpu int, records []byte, missed bool) {
		if missed {
			lost++
		}
		if n := Decode(cpu, 0, records, func(r *Record) { all = append(all, *r) }); n != len(records) {
			lost++
		}
	})
	return all, lost
}

// Each record is read once, however often the buffer wraps; and nothing stays enabled afterwards.
func TestBuffers(t *testing.T) {
	f := newFake(false)
	b := open(t, f)
	if want := []string{"events", "cpus", "size"}; !slices.Equal(f.calls, want) || b.Existed() || b.CPUs() != 3 || f.says.Events != AllSchedule {
		t.Fatalf("%v, %d CPUs, %#x", f.calls, b.CPUs(), f.says.Events)
	}
	at := uint64(1)
	for round := range 50 {
		var want []Record
		for i := range 150 + round {
			r := Record{CPU: 2 * (i % 2), Event: SwitchNext, At: at, N: i % 8}
			for w := range r.N {
				r.Words[w] = uint32(at)
			}
			if !note(f.memory[uint64(10*r.CPU+1)], &r) {
				t.Fatal("no room")
			}
			at++
			want = append(want, r)
		}
		got, lost := read(b)
		slices.SortStableFunc(got, byTime)
		if lost != 0 || !slices.Equal(got, want) {
			t.Fatalf("round %d: %d of %d records, %d lost", round, len(got), len(want), lost)
		}
	}
	if err := b.Close(); err != nil || f.maps != 0 || f.on || f.says.Events != everything {
		t.Errorf("%v, %d mapped, on %v, %#x", err, f.maps, f.on, f.says.Events)
	}
}

// Another program that reads the buffers loses nothing by us: its events stay enabled, and it consumes records at its
// own pace, as long as it consumes any.
func TestBesideXentrace(t *testing.T) {
	const others = 0x00801000
	f := newFake(true)
	f.says.Events, f.on = others, true
	mem := f.memory[1]
	old := Record{Event: others | 1, At: 1}
	note(mem, &old)
	b := open(t, f)
	if !b.Existed() || f.says.Events != others|AllSchedule {
		t.Errorf("noted are %#x", f.says.Events)
	}
	for i := range 400 {
		r := Record{Event: Wake, At: uint64(i + 2), N: 2}
		if !note(mem, &r) {
			t.Fatal("no room, though it is taken")
		}
		if got, lost := read(b); lost != 0 || len(got) != 1 || got[0] != r {
			t.Fatalf("%v, %d lost", got, lost)
		}
		if i%10 == 9 { // the other consumes all records
			if word(mem, consumed).Load() == word(mem, produced).Load() {
				t.Fatal("we have taken it")
			}
			word(mem, consumed).Store(word(mem, produced).Load())
		}
	}
	if !b.Shared() {
		t.Error("the other isn't noticed")
	}
	for i := range 1000 { // the other has ended
		if r := (Record{Event: Wake, At: uint64(i + 1000), N: 2}); !note(mem, &r) {
			t.Fatalf("no room for record %d: nobody takes them", i)
		}
		if got, lost := read(b); lost != 0 || len(got) != 1 {
			t.Fatalf("%v, %d lost", got, lost)
		}
	}
	if err := b.Close(); err != nil || !f.on || f.says.Events != others {
		t.Errorf("%v, on %v, %#x", err, f.on, f.says.Events)
	}
}

// Readers of one process don't count as foreign to each other: closing one leaves tracing on for the others, and the
// last one restores the previous state.
func TestCompany(t *testing.T) {
	f := newFake(true)
	f.says.Events = 0
	mem := f.memory[1]
	var c SharedReaders
	join := func(events uint32) *Buffers {
		t.Helper()
		b, err := c.Open(f, f, events, 32)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := uint64(0)
	goOn := func(of ...*Buffers) {
		t.Helper()
		for range 1000 {
			r := Record{Event: Wake, At: at, N: 2}
			if at++; !note(mem, &r) {
				t.Fatal("no room: nobody takes")
			}
			for i, b := range of {
				if got, lost := read(b); lost != 0 || len(got) != 1 || got[0] != r {
					t.Fatalf("%d: %v, %d lost", i, got, lost)
				}
			}
		}
	}
	one := join(AllSchedule)
	goOn(one)
	two := join(0x00023000)
	goOn(one, two)
	goOn(two, one)
	if one.Shared() || two.Shared() {
		t.Error("they take each other for somebody else")
	}
	if err := one.Close(); err != nil || !f.on || f.says.Events&0x00023000 != 0x00023000 {
		t.Errorf("%v: who stays has tracing on %v, of %#x", err, f.on, f.says.Events)
	}
	goOn(two)
	three := join(AllSchedule)
	goOn(two, three)
	if err := two.Close(); err != nil || !f.on || f.says.Events != AllSchedule {
		t.Errorf("%v: who stays has tracing on %v, of %#x", err, f.on, f.says.Events)
	}
	if err := errors.Join(three.Close(), three.Close()); err != nil || f.on || f.says.Events != 0 || f.maps != 0 {
		t.Errorf("%v: tracing is on %v, of %#x, and %d are mapped", err, f.on, f.says.Events, f.maps)
	}
	one = join(AllSchedule)
	two = join(AllSchedule)
	note(mem, &Record{Event: Wake, At: at})
	word(mem, consumed).Store(word(mem, produced).Load()) // a foreign program consumes
	read(one)
	read(two)
	goOn(one, two)
	if err := errors.Join(one.Close(), two.Close()); err != nil || !f.on || f.says.Events != 0 {
		t.Errorf("%v: somebody else has tracing on %v, of %#x", err, f.on, f.says.Events)
	}
	const others = 0x00801000
	one = join(AllSchedule)
	f.says.Events = others // set by a foreign program
	two = join(AllSchedule)
	if f.says.Events != others|AllSchedule {
		t.Errorf("noted are %#x", f.says.Events)
	}
	if err := errors.Join(one.Close(), two.Close()); err != nil || f.says.Events != others {
		t.Errorf("%v: noted are %#x", err, f.says.Events)
	}
}

// Where others free the buffer, overwritten records are lost to us, and reported as lost.
func TestOverwritten(t *testing.T) {
	f := newFake(true)
	b, mem := open(t, f), f.memory[1]
	read(b)
	for i := range 700 {
		word(mem, consumed).Store(word(mem, produced).Load())
		note(mem, &Record{Event: Wake, At: uint64(i), N: 2})
	}
	if got, lost := read(b); lost != 1 || len(got) != 0 {
		t.Errorf("%d records, %d lost", len(got), lost)
	}
	r := Record{Event: Wake, At: 7000, N: 2}
	note(mem, &r)
	if got, lost := read(b); lost != 0 || len(got) != 1 || got[0] != r {
		t.Errorf("%v, %d lost", got, lost)
	}
}

func TestFile(t *testing.T) {
	var file bytes.Buffer
	one := Record{CPU: 1, Event: SwitchPrev, At: 20, N: 3, Words: [7]uint32{1, 2, 3}}
	two := Record{CPU: 5, Event: Running | 0x210, At: 10, N: 1}
	for _, r := range []Record{one, two} {
		if err := WriteTo(&file, r.CPU, Append(nil, &r)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Parse(file.Bytes())
	if err != nil || !slices.Equal(all, []Record{two, one}) {
		t.Errorf("%v, %v", all, err)
	}
	if from, to := two.Runstates(); two.Kind() != Running || from != Blocked || to != Waits {
		t.Errorf("%v to %v", from, to)
	}
	for _, bad := range [][]byte{[]byte("no trace at all"), file.Bytes()[:file.Len()-1], file.Bytes()[:5]} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is a trace", bad)
		}
	}
}

func TestClock(t *testing.T) {
	c, err := NewClock(Instant{1000, 0}, Instant{3600, 1000})
	if err != nil {
		t.Fatal(err)
	}
	for ticks, want := range map[uint64]int64{1000: 0, 3600: 1000, 6200: 2000, 2300: 500, 1<<64 - 1: longest} {
		if got := c.Nanos(ticks); got != want && want != longest || got < 0 {
			t.Errorf("%d is %d ns, not %d", ticks, got, want)
		}
	}
	c.Set(Instant{2600, 2000}) // in the past
	c.Set(Instant{6200, 2010})
	if got := c.Nanos(6200); got != 2010 {
		t.Errorf("%d", got)
	}
	if _, err := NewClock(Instant{5, 5}, Instant{5, 6}); err == nil {
		t.Error("a clock that stands")
	}
	if a, b := Now(), Now(); b.Nanos < a.Nanos {
		t.Error("time runs backwards")
	}
}

// nonsense is a source of records with times in the far future.
type nonsense struct{ at uint64 }

func (n *nonsense) Read(emit func(cpu int, records []byte, lost bool)) {
	var b []byte
	for range 100 {
		n.at += 1 << 40
		b = Append(b, &Record{Event: Wake, At: 1<<62 + n.at, N: 2})
	}
	emit(0, b, false)
}
func (n *nonsense) Close() error { return nil }

// A record with an invalid time isn't waited for.
func TestNonsense(t *testing.T) {
	now := int64(0)
	f := Follow(func() Instant { now += 1000000; return Instant{uint64(now), now} }, func() (Source, error) { return &nonsense{}, nil })
	for range 200 {
		f.Look(func(at int64, r *Record) { t.Fatalf("at %d: %+v", at, r) })
	}
	if n := len(f.merger.pending); n > 0 {
		t.Errorf("%d records wait", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(Append(nil, &Record{Event: SwitchNext, At: 7, N: 4}), &Record{Event: wrap, N: 7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		n := 0
		used := Decode(3, 9, b, func(r *Record) {
			if r.CPU != 3 || r.N > 7 || r.Event > eventBits {
				t.Fatalf("%+v", r)
			}
			again = Append(again, r)
			n++
		})
		if used > len(b) {
			t.Fatalf("%d of %d bytes", used, len(b))
		}
		m := 0
		if Decode(3, 9, again, func(*Record) { m++ }); m != n {
			t.Errorf("%d records, and %d when written again", n, m)
		}
	})
}

// For any index values in a buffer, the records read lie within it.
func FuzzRing(f *testing.F) {
	f.Add(uint32(0), uint32(40), uint32(80), uint32(200), true, []byte("some records"))
	f.Add(uint32(1<<32-1), uint32(5000), uint32(9), uint32(1<<31), false, []byte{})
	f.Fuzz(func(t *testing.T, cons, prod, cons2, prod2 uint32, fresh bool, data []byte) {
		mem := make([]byte, 4096)
		copy(mem[ringHeader:], data)
		word(mem, consumed).Store(cons)
		word(mem, produced).Store(prod)
		r := NewRing(mem, fresh)
		for range 3 {
			got, lost := r.Read()
			if len(got) > len(r.data) || lost && len(got) > 0 {
				t.Fatalf("%d bytes of %d, lost %v", len(got), len(r.data), lost)
			}
			word(mem, consumed).Store(cons2)
			word(mem, produced).Store(prod2)
		}
	})
}

func FuzzInfo(f *testing.F) {
	h := newFake(true)
	f.Add(h.memory[tableFrame][:64])
	f.Fuzz(func(t *testing.T, table []byte) {
		frames, err := Info(table)
		for _, list := range frames {
			if err != nil || list != nil && len(list) != int(le.Uint16(table)) {
				t.Fatalf("%d frames, %v", len(list), err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	var b bytes.Buffer
	WriteTo(&b, 1, Append(nil, &Record{Event: SwitchPrev, At: 20, N: 3}))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		all, err := Parse(file)
		if err != nil || len(all) == 0 {
			return
		}
		if !slices.IsSortedFunc(all, byTime) {
			t.Error("out of order")
		}
		if c, err := Calibrate(all); err == nil {
			for i := range all {
				c.Nanos(all[i].At)
			}
		}
	})
}
