package weightjournal

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"pegasus/internal/testkit"
)

// machine implements Weight.
type machine struct {
	mu    sync.Mutex
	has   int64
	wrong error // error of Get
	stuck error // error of Put
}

// Get implements Weight.
func (m *machine) Get() (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has, m.wrong
}

// Put implements Weight.
func (m *machine) Put(weight int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck == nil {
		m.has = weight
	}
	return m.stuck
}

func (m *machine) fails(wrong, stuck error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong, m.stuck = wrong, stuck
}

func (m *machine) put(r Record) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.wrong, m.stuck); err != nil {
		return true, err
	}
	if !slices.Contains(r.Ours, m.has) {
		return false, nil
	}
	m.has = r.Set
	return true, nil
}

func (m *machine) is(want int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has == want
}

// set sets the weight as another program does.
func (m *machine) set(weight int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.has = weight
}

// left writes the record of a daemon, the given process, for a machine that got 400 or 25 instead of 100.
func left(t *testing.T, dir string, pid int) {
	t.Helper()
	started, _ := startOf(pid)
	text, err := json.Marshal(Record{PID: pid, Started: started, Xen: 3, Set: 100, Ours: []int64{400, 25}})
	if err == nil {
		err = os.WriteFile(pathOf(dir, "one"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// deadDaemon returns the number of a process that has ended.
func deadDaemon(t *testing.T) int {
	t.Helper()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	return dead.Process.Pid
}

func records(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

var log = slog.New(slog.DiscardHandler)

// guard runs the machine's hub's Guard until the end of the test.
func (m *machine) guard(t *testing.T, dir string) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { Guard(ctx, dir, "one", log, m.put); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
}

// A weight that a dead daemon left changed is restored, once, by its first finder; one that another program has set
// since stays.
func TestPutBack(t *testing.T) {
	dead := deadDaemon(t)
	for name, c := range map[string]struct {
		pid       int
		has, want int64
	}{
		"of a daemon that died": {dead, 400, 100},
		"of one that lives":     {os.Getpid(), 400, 400},
		"set since":             {dead, 300, 300},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := &machine{has: c.has}, t.TempDir()
			left(t, dir, c.pid)
			m.guard(t, dir)
			if c.pid == os.Getpid() {
				time.Sleep(guardEvery + guardEvery/2)
				if !m.is(c.want) || records(t, dir) != 1 {
					t.Errorf("it has %d, not %d, with %d records", m.has, c.want, records(t, dir))
				}
				return
			}
			testkit.Eventually(t, "it has what was set, and nothing is written down", func() bool { return m.is(c.want) && records(t, dir) == 0 })
			m.set(25) // as another program
			time.Sleep(guardEvery + guardEvery/2)
			Sweep(dir, log, m.put)
			if !m.is(25) {
				t.Errorf("it has %d, not 25", m.has)
			}

			m.set(c.has)
			left(t, dir, c.pid)
			Sweep(dir, log, m.put)
			if !m.is(c.want) || records(t, dir) > 0 {
				t.Errorf("swept, it has %d, not %d, with %d records", m.has, c.want, records(t, dir))
			}
		})
	}
}

// A weight that can't be restored stays recorded until it is: for the next daemon, for the hub, and for reads of the
// configured weight.
func TestPutBackLater(t *testing.T) {
	once := errors.New("try again")
	dead := deadDaemon(t)
	begin := func(t *testing.T) (*machine, string) {
		m, dir := &machine{has: 400, stuck: once}, t.TempDir()
		left(t, dir, dead)
		Sweep(dir, log, m.put)
		if !m.is(400) || records(t, dir) != 1 {
			t.Fatalf("it has %d, with %d records", m.has, records(t, dir))
		}
		return m, dir
	}
	t.Run("swept", func(t *testing.T) {
		m, dir := begin(t)
		m.fails(nil, nil)
		Sweep(dir, log, m.put)
		if !m.is(100) || records(t, dir) > 0 {
			t.Errorf("it has %d, with %d records", m.has, records(t, dir))
		}
	})
	t.Run("guarded", func(t *testing.T) {
		m, dir := begin(t)
		m.guard(t, dir)
		time.Sleep(guardEvery / 2)
		m.fails(nil, nil)
		testkit.Eventually(t, "it has what was set, and nothing is written down", func() bool { return m.is(100) && records(t, dir) == 0 })
	})
	t.Run("seen", func(t *testing.T) {
		m, dir := begin(t)
		w := NewWeights(dir, "a machine", log)
		if _, _, err := w.See("one", Record{Xen: 3}, m); !errors.Is(err, once) {
			t.Errorf("while it can't be put back: %v", err)
		}
		m.fails(nil, nil)
		if set, has, err := w.See("one", Record{Xen: 3}, m); err != nil || set != 100 || has != 100 || records(t, dir) > 0 {
			t.Errorf("%d is set, it has %d, %v, with %d records", set, has, err, records(t, dir))
		}
	})
	t.Run("of nobody", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(pathOf(dir, "one"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		Sweep(dir, log, (&machine{has: 400}).put)
		if records(t, dir) > 0 {
			t.Error("what makes no sense stays")
		}
	})
}

// The record exists before the weight is changed, names this process, and is removed when the weight is restored.
func TestNote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raised")
	r := Record{Xen: 3}
	r.Erase(dir, "one")
	for _, w := range []int64{1024, 64, 1024} {
		if err := r.Note(dir, "one", 256, w); err != nil {
			t.Fatal(err)
		}
	}
	got, err := read(pathOf(dir, "one"))
	if err != nil || got.Xen != 3 || got.Set != 256 || !slices.Equal(got.Ours, []int64{1024, 64}) || !got.held() {
		t.Errorf("%+v, %v", got, err)
	}
	r.Erase(dir, "one")
	if left, _ := os.ReadDir(dir); len(left) > 0 || len(r.Ours) > 0 {
		t.Errorf("%v are left, and %+v", left, r)
	}
}

// Every valid record is of one machine, and has a weight.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"pid":1,"started":2,"file":"/sys/fs/cgroup/x/cpu.weight","set":100,"ours":[400,25]}`))
	f.Add([]byte(`{"pid":1,"started":2,"domid":7,"set":256,"ours":[1024]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parse(text)
		if err == nil && (r.Set < 1 || r.Set > MaxWeight || filepath.IsAbs(r.File) == (r.Xen != 0)) {
			t.Errorf("%+v", r)
		}
	})
}
