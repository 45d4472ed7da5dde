package engine

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A worker has the page of its domain mapped, and no descriptor by which it could change the file; it has its places all the same.
func TestOpenPages(t *testing.T) {
	m, _ := newPages(t, Options{Memory: 1 << 20})
	path := filepath.Join(t.TempDir(), "domain-a")
	kept, err := CreateEnginesAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.LockIn(m); err != nil {
		t.Fatal(err)
	}
	file := kept.File()
	defer file.Close()
	defer kept.Close()
	if _, err := CreateEnginesAt(path); err == nil {
		t.Error("a page was made where there is one")
	}
	files := []*os.File{copyOf(t, m.FD()), copyOf(t, int(file.Fd()))}
	shared, engines, err := OpenPages(files)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	defer engines.Close()
	defer files[0].Close()
	defer files[1].Close()
	if flags, err := unix.FcntlInt(files[1].Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY || engines.FD() != -1 {
		t.Errorf("the page's file can be written: flags %#x, %v; descriptor %d", flags, err, engines.FD())
	}
	w, err := shared.Register(engines, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Acquire(Compute, nil); kept.Holder(Compute) != os.Getpid() || !kept.alive(w.index) {
		t.Error("the daemon does not see who holds the engine")
	}
	w.die()
	kept.Sweep()
	if kept.Holder(Compute) != 0 || kept.Total()[Compute] == 0 {
		t.Error("what a dead worker held is neither free nor charged")
	}
	if _, _, err := OpenPages(files[:1]); err == nil {
		t.Error("one page is enough")
	}
}
