package handover

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/accel"
)

// A request with the tag of an export gets a descriptor of it; one with an unknown tag, or none, gets nothing, and
// disturbs no other. An export lasts as long as its memory.
func TestHandover(t *testing.T) {
	var o Offers
	defer o.Close()
	log := slog.New(slog.DiscardHandler)
	export := func(text string) func() (int, error) {
		return func() (int, error) {
			fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
			if err == nil {
				_, err = unix.Pwrite(fd, []byte(text), 0)
			}
			return fd, err
		}
	}
	exported := ExportedFD{Whole: 2 << 20, At: 512, Bytes: 700}
	one, err := o.Add(1, exported, export("one"), log)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := o.Add(1, exported, export("one"), log); err != nil || again != one {
		t.Errorf("the same again is %+v, %v, not %+v", again, err, one)
	}
	two, err := o.Add(2, exported, export("two"), log)
	if err != nil || two.Tag == one.Tag || two.ID != one.ID {
		t.Fatalf("%+v %v", two, err)
	}
	bad, err := o.Add(3, exported, func() (int, error) { return -1, errors.New("no") }, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "1234567", "123456789"} {
		c, err := net.DialUnix("unixpacket", nil, address(one.ID))
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			c.Write([]byte(text))
		}
		c.Close()
	}
	for _, strange := range []accel.ShareToken{{ID: one.ID, Tag: one.Tag + 1}, {ID: one.ID + 1, Tag: one.Tag}, bad} {
		if got, fd, err := Fetch(strange); err == nil {
			t.Errorf("%+v got %+v, descriptor %d", strange, got, fd)
		}
	}
	for ticket, want := range map[accel.ShareToken]string{one: "one", two: "two"} {
		g, fd, err := Fetch(ticket)
		if err != nil || g != exported {
			t.Fatalf("%+v %v", g, err)
		}
		f := os.NewFile(uintptr(fd), "memory")
		defer f.Close()
		text := make([]byte, 3)
		if _, err := f.ReadAt(text, 0); err != nil || string(text) != want {
			t.Errorf("%q %v, want %q", text, err, want)
		}
	}
	o.Forget(1)
	if _, _, err := Fetch(one); err == nil {
		t.Error("memory that is gone is given")
	}
	if _, fd, err := Fetch(two); err != nil {
		t.Error(err)
	} else {
		unix.Close(fd)
	}
}

func FuzzAnswer(f *testing.F) {
	one := ExportedFD{Whole: 2 << 20, At: 5, Bytes: 9}
	f.Add(one.append(nil))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := read(b)
		if err != nil {
			return
		}
		if end := g.At + g.Bytes; end < g.At || end > g.Whole || g.Bytes == 0 {
			t.Errorf("%+v", g)
		}
		if !bytes.Equal(g.append(nil), b) {
			t.Errorf("%x is read as %+v", b, g)
		}
	})
}
