package weightjournal

import (
	"errors"
	"testing"
)

// A failed call loses nothing: our weight doesn't count as the configured one, and the configured one stays recorded
// until the machine has it again, or is off.
func TestCallsThatFail(t *testing.T) {
	once := errors.New("try again")
	begin := func(t *testing.T) (*Weights, *machine, string) {
		m, dir := &machine{has: 100}, t.TempDir()
		w := NewWeights(dir, "a machine", log)
		if _, _, err := w.See("one", Record{Xen: 3}, m); err != nil {
			t.Fatal(err)
		}
		if changed, err := w.Raise("one", 400); err != nil || changed || !m.is(400) {
			t.Fatalf("%d: %v, %v", m.has, changed, err)
		}
		return w, m, dir
	}
	seen := func(t *testing.T, w *Weights, m *machine, where Record) {
		t.Helper()
		if set, has, err := w.See("one", where, m); err != nil || set != 100 || has != 100 || !m.is(100) {
			t.Errorf("%d is set, it has %d, or %d, %v", set, has, m.has, err)
		}
	}
	for _, to := range []int64{100, 25} {
		t.Run("lowered", func(t *testing.T) {
			w, m, dir := begin(t)
			m.fails(nil, once)
			if changed, err := w.Raise("one", to); !errors.Is(err, once) || changed {
				t.Errorf("%v, %v", changed, err)
			}
			if _, _, err := w.See("one", Record{Xen: 3}, m); !errors.Is(err, once) || records(t, dir) != 1 {
				t.Errorf("while it can't be written: %v, with %d records", err, records(t, dir))
			}
			m.fails(nil, nil)
			seen(t, w, m, Record{Xen: 3}) // no other program lowers it
			w.Restore()
			if !m.is(100) || records(t, dir) > 0 {
				t.Errorf("it has %d, with %d records", m.has, records(t, dir))
			}
		})
	}
	t.Run("lowered at last", func(t *testing.T) {
		w, m, dir := begin(t)
		nobody := func(string) bool { return false }
		w.Keep(nobody) // it has still to be lowered
		m.fails(nil, once)
		w.Raise("one", 100)
		w.Keep(nobody)
		m.fails(nil, nil)
		if records(t, dir) != 1 {
			t.Error("what is set isn't written down")
		}
		w.Keep(nobody)
		if !m.is(100) || records(t, dir) > 0 {
			t.Errorf("it has %d, with %d records", m.has, records(t, dir))
		}
	})
	t.Run("set meanwhile", func(t *testing.T) {
		w, m, dir := begin(t)
		m.fails(nil, once)
		w.Raise("one", 100)
		m.fails(nil, nil)
		m.set(300)
		if set, has, err := w.See("one", Record{Xen: 3}, m); err != nil || set != 300 || has != 300 || !m.is(300) || records(t, dir) > 0 {
			t.Errorf("%d is set, it has %d, %v, with %d records", set, has, err, records(t, dir))
		}
	})
	for name, fail := range map[string]func(m *machine){
		"read":    func(m *machine) { m.fails(once, nil) },
		"written": func(m *machine) { m.fails(nil, once) },
	} {
		t.Run("restored, not "+name, func(t *testing.T) {
			w, m, dir := begin(t)
			fail(m)
			w.Restore()
			if !m.is(400) || records(t, dir) != 1 {
				t.Errorf("it has %d, with %d records", m.has, records(t, dir))
			}
			m.fails(nil, nil)
			Sweep(dir, log, m.put)
			if !m.is(100) || records(t, dir) > 0 {
				t.Errorf("it has %d, with %d records", m.has, records(t, dir))
			}
		})
		t.Run("started anew, not "+name, func(t *testing.T) {
			w, m, dir := begin(t)
			fail(m)
			other := &machine{has: 100}
			if _, _, err := w.See("one", Record{Xen: 4}, other); !errors.Is(err, once) || records(t, dir) != 1 {
				t.Errorf("%v, with %d records", err, records(t, dir))
			}
			m.fails(nil, nil)
			seen(t, w, other, Record{Xen: 4})
			if !m.is(100) || records(t, dir) > 0 {
				t.Errorf("it has %d, with %d records", m.has, records(t, dir))
			}
		})
	}
	t.Run("off", func(t *testing.T) {
		w, m, dir := begin(t)
		m.fails(ErrOff, nil)
		w.Restore()
		if records(t, dir) > 0 {
			t.Error("a record is left of a machine that is off")
		}
	})
}
