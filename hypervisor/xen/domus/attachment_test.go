package domus

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/vcpu"
)

func files(t *testing.T) Files {
	return Files{Dir: t.TempDir(), Valid: func(name string) error {
		if name == "bad name" {
			return errors.New("no")
		}
		return nil
	}}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		`{"memory": 67108864}`:                   "",
		`{"credits": 512, "memory": 67108864}`:   "",
		`{"credits": -1, "memory": 67108864}`:    "number -1",
		`{"credits": 70000, "memory": 67108864}`: "number 70000",
		`{"memory": 4097}`:                       "memory = 4097: want a multiple of 4 KiB",
		`{}`:                                     "memory = 0",
		`{"memory": 67108864} {}`:                "more than one value",
		`{"memory": 67108864, "cap": 3}`:         "unknown field",
		``:                                       "EOF",
	} {
		a, err := Parse("web", []byte(text))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err == nil && (a.Name != "web" || a.Memory != 64<<20):
			t.Errorf("%s: %+v", text, a)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"credits": 512, "memory": 67108864}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Parse("web", text)
		if err != nil {
			return
		}
		again, err := Parse("web", a.Text())
		if err != nil || again != a {
			t.Errorf("%+v becomes %+v, %v", a, again, err)
		}
	})
}

func TestFiles(t *testing.T) {
	f := files(t)
	for _, a := range []Attachment{{"web", 512, DefaultMemory}, {"db", 0, 2 * DefaultMemory}, {"web", 300, DefaultMemory}} {
		if err := f.Write(a); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.List()
	if err != nil || len(all) != 2 || all[0] != (Attachment{"db", 0, 2 * DefaultMemory}) || all[1] != (Attachment{"web", 300, DefaultMemory}) {
		t.Errorf("%v, %v", all, err)
	}
	st, err := os.Stat(f.Path("web"))
	if err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.Mkdir(f.Path("bad name"), 0o755); err != nil {
		t.Fatal(err)
	}
	if all, err := f.List(); len(all) != 2 || err == nil {
		t.Errorf("%v, %v", all, err)
	}
	if err := f.Remove("web"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read("web"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Chmod(f.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if all, err := f.List(); len(all) != 0 || err == nil || !strings.Contains(err.Error(), "others could attach") {
		t.Errorf("%v, %v", all, err)
	}
	if err := f.Write(Attachment{"shop", 0, DefaultMemory}); err == nil || !strings.Contains(err.Error(), "chmod 755") {
		t.Errorf("attached where nobody looks: %v", err)
	}
}

// Concurrent writes of one domU's attachment return no error, and a concurrent read returns all of one of them.
func TestWriteAtOnce(t *testing.T) {
	f := files(t)
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			for i := range 50 {
				err := f.Write(Attachment{"web", vcpu.Credits(1 + who*50 + i), DefaultMemory})
				if _, bad := f.Read("web"); err != nil || bad != nil {
					t.Error(errors.Join(err, bad))
					return
				}
			}
		})
	}
	all.Wait()
	if left, err := filepath.Glob(f.Dir + "/[!.]*"); len(left) != 1 || err != nil {
		t.Errorf("there are %v, %v", left, err)
	}
	if left, err := filepath.Glob(f.Dir + "/.*" + unfinished); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A process that is stopped while it attaches blocks others for a limited time, and another user's process can't
// block them.
func TestStoppedWriter(t *testing.T) {
	f := files(t)
	f.Patience = 50 * time.Millisecond
	web := Attachment{"web", 0, DefaultMemory}
	unlock, err := f.lock()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { failed <- f.Write(web) }()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "is that one stopped?") {
			t.Errorf("beside one that is stopped: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits without an end")
	}
	unlock()
	dir, err := os.Open(f.Dir) // which is readable for every user
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	go func() { failed <- f.Write(web) }()
	select {
	case err := <-failed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("any user's lock of the directory keeps it")
	}
}

// A mistake in a file blocks nothing, and ends no domU's service.
func TestReader(t *testing.T) {
	f := files(t)
	var said bytes.Buffer
	r := f.reader(slog.New(slog.NewTextHandler(&said, nil)))
	again := func() []Attachment {
		r.at = time.Time{}
		return r.read()
	}
	put := func(name, text string) {
		if err := os.WriteFile(f.Path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if all := again(); len(all) != 0 {
		t.Errorf("%v", all)
	}
	put("web", `{"credits": 5, "memory": 67108864}`)
	put("db", `{`)
	if all := again(); len(all) != 1 || all[0].Credits != 5 {
		t.Errorf("%v", all)
	}
	put("web", `{"credits": "many"}`)
	if all := again(); len(all) != 1 || all[0].Credits != 5 {
		t.Errorf("%v", all)
	}
	if n := strings.Count(said.String(), "cannot read some"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, &said)
	}
	put("web", `{"credits": 6, "memory": 67108864}`)
	os.Remove(f.Path("db"))
	if all := again(); len(all) != 1 || all[0].Credits != 6 || !strings.Contains(said.String(), "can be read again") {
		t.Errorf("%v\n%s", all, &said)
	}
	os.Remove(f.Path("web"))
	if all := again(); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

// A directory of attachments has one daemon at a time, and its lock is no attachment.
func TestClaim(t *testing.T) {
	f := files(t)
	if err := f.Write(Attachment{Name: "web", Memory: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	soon := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	release, err := f.Claim(soon(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(soon(50 * time.Millisecond)); !errors.Is(err, hypervisor.ErrServed) || !strings.Contains(err.Error(), "(machines in [daemon])") {
		t.Errorf("claimed twice: %v", err)
	}
	if all, err := f.List(); err != nil || len(all) != 1 || all[0].Name != "web" {
		t.Errorf("%+v, %v", all, err)
	}
	release()
	if release, err = f.Claim(soon(time.Minute)); err != nil {
		t.Fatal(err)
	}
	release()
	if err := os.Chmod(f.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(soon(time.Minute)); err == nil || errors.Is(err, hypervisor.ErrServed) {
		t.Errorf("a directory of all users: %v", err)
	}
}
