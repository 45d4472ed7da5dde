package cpus

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

func records(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A weight of ours never counts as the configured one; another program's weight stays.
func TestRaise(t *testing.T) {
	f, dir := newFake(), t.TempDir()
	f.pool(control.Credit, 0)
	f.pool(control.Credit2, 1)
	f.domain(0, 0, 256, 1)
	f.domain(1, 1, 256, 1)
	c, of := f.cpus(), guests(1)
	r := c.Raiser(dir)
	has := func(want uint16) {
		t.Helper()
		if f.params[1].Weight != want {
			t.Errorf("it has %d, not %d", f.params[1].Weight, want)
		}
	}
	set := func(want, weight int64) {
		t.Helper()
		if all := r.Groups(of); len(all) != 1 || all[0] != (hypervisor.Group{Domain: "d1", Parent: "CPU pool 1", Weight: want, Has: weight, Least: 1, Most: 65535}) {
			t.Fatalf("%+v, want %d", all, want)
		}
		if w := c.Weights(of)[0]; w.Credits != vcpu.Credits(want) {
			t.Errorf("its weight is %+v, not %d", w, want)
		}
	}
	raise := func(weight int64, changed bool) {
		t.Helper()
		if was, err := r.Raise("d1", weight); err != nil || was != changed {
			t.Fatalf("%d: %v, %v", weight, was, err)
		}
	}
	set(256, 256)
	if records(t, dir) != 0 {
		t.Error("something is written down before anything is changed")
	}
	raise(1024, false)
	has(1024)
	set(256, 1024)
	raise(64, false)
	has(64)
	set(256, 64)
	if records(t, dir) != 1 {
		t.Errorf("%d records", records(t, dir))
	}
	f.SetWeight(control.Credit2, 1, 300) // another program sets that
	raise(256, true)
	has(300)
	set(300, 300)
	if records(t, dir) != 0 {
		t.Error("what was set before is written down still")
	}
	raise(1200, false)
	raise(300, false)
	has(300)
	for _, w := range []int64{0, -1, 65536} {
		if _, err := r.Raise("d1", w); err == nil {
			t.Errorf("it is given a weight of %d", w)
		}
	}
	raise(1200, false)
	r.Restore()
	has(300)
	if records(t, dir) != 0 {
		t.Error("a record is left")
	}
	set(300, 300)
	raise(1200, false)
	f.remove(1)
	if _, err := r.Raise("d1", 300); err == nil {
		t.Error("one that has ended can be raised")
	}
	if all := r.Groups(of); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	r.Restore()
	if records(t, dir) != 0 {
		t.Error("a record is left of a machine that is off")
	}
	if _, err := r.Raise("d9", 300); err == nil {
		t.Error("nobody can be raised")
	}
}

// Domains that use the CPUs of a pool count there, and idle ones nowhere.
func TestOthers(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.pool(control.Credit, 1)
	f.domain(0, 0, 256, 1)
	f.domain(1, 1, 256, 1)
	f.domain(2, 1, 700, 1)
	f.domain(3, 1, 800, 1)
	r := f.cpus().Raiser(t.TempDir())
	r.Groups(guests(1))
	f.pass(period)
	for i := range f.domains {
		if id := f.domains[i].ID; id == 0 || id == 2 {
			f.domains[i].CPUTime += period
		}
	}
	if all := r.Groups(append(guests(1), hypervisor.Guests{Domain: "p", Processes: []int{1}})); len(all) != 1 || all[0].Others != 700 {
		t.Errorf("%+v", all)
	}
}

// A weight that a dead daemon left changed is restored; one that another program has set since stays.
func TestPutBack(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(0, 0, 256, 1)
	f.domain(1, 0, 256, 1)
	for has, want := range map[uint16]uint16{1024: 512, 128: 512, 300: 300} {
		f.SetWeight(control.Credit, 1, has)
		put, err := PutBack(f, weightjournal.Record{Xen: 1, Set: 512, Ours: []int64{1024, 128}})
		if got := f.params[1].Weight; err != nil || put != (has != want) || got != want {
			t.Errorf("over %d there is %d: %v, %v", has, got, put, err)
		}
	}
	for _, r := range []weightjournal.Record{{Xen: 7, Set: 512, Ours: []int64{0, 300}}, {Xen: 1, Set: 1 << 17, Ours: []int64{512, 300}}} {
		if put, err := PutBack(f, r); put || err != nil {
			t.Errorf("%+v: %v, %v", r, put, err)
		}
	}
}

// A domain in an unknown state doesn't count as off.
func TestOff(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 1)
	c := f.cpus()
	for id, off := range map[uint16]bool{1: false, 7: true} {
		w := domainWeight{c, id}
		if _, err := w.Get(); err == nil || errors.Is(err, weightjournal.ErrOff) != off {
			t.Errorf("domain %d: %v", id, err)
		}
	}
	if c.read(false); c.domains[1] == nil {
		t.Fatal("it isn't known")
	}
	w := domainWeight{c, 1}
	if has, err := w.Get(); err != nil || has != 256 {
		t.Errorf("%d, %v", has, err)
	}
	f.remove(1)
	if _, err := w.Get(); !errors.Is(err, weightjournal.ErrOff) {
		t.Errorf("when it has just ended: %v", err)
	}
}

// side is the CPU side of guests with equal weights.
type side struct {
	weight  int
	quality vcpu.Quality
	looks   int
	closed  int
}

func (s *side) Weights(of []hypervisor.Guests) (all []hypervisor.Weight) {
	for range of {
		all = append(all, hypervisor.Weight{Cap: s.weight})
	}
	return all
}

func (s *side) Spent(of []hypervisor.Guests) (all []hypervisor.Spent) {
	for range of {
		all = append(all, hypervisor.Spent{VCPUs: s.weight})
	}
	return all
}

func (s *side) Look(_ vcpu.Time, _ time.Duration, of []hypervisor.Guests) (all []vcpu.Schedule, q vcpu.Quality) {
	s.looks++
	for range of {
		all = append(all, vcpu.Schedule{Cap: s.weight})
	}
	return all, s.quality
}

func (s *side) Close() { s.closed++ }

// Each guest is passed to its side, and its result has its index.
func TestBeside(t *testing.T) {
	xen, linux := &side{weight: 1, quality: vcpu.Exact}, &side{weight: 2, quality: vcpu.Shadow}
	b := NewBeside(xen, linux)
	of := []hypervisor.Guests{{Domain: "a", Processes: []int{7}}, {Domain: "b", Xen: 3}, {Domain: "c", Processes: []int{8}}, {Domain: "d", Xen: 1}}
	var said []int
	for _, w := range b.Weights(of) {
		said = append(said, w.Cap)
	}
	for _, s := range b.Spent(of) {
		said = append(said, s.VCPUs)
	}
	seen, quality := b.Look(0, period, of)
	for _, s := range seen {
		said = append(said, s.Cap)
	}
	if fmt.Sprint(said) != "[2 1 2 1 2 1 2 1 2 1 2 1]" || quality != vcpu.Shadow {
		t.Errorf("%v, %v", said, quality)
	}
	if _, quality = b.Look(0, period, of[1:2]); quality != vcpu.Exact || linux.closed != 1 || linux.looks != 1 || xen.closed != 0 {
		t.Errorf("%v, and the one without guests is closed %d times", quality, linux.closed)
	}
	linux.quality = vcpu.Unknown // it has no data
	if _, quality = b.Look(0, period, of); quality != vcpu.Exact {
		t.Errorf("%v", quality)
	}
	b.Close()
	if xen.closed != 1 || linux.closed != 2 {
		t.Errorf("closed %d and %d times", xen.closed, linux.closed)
	}
}
