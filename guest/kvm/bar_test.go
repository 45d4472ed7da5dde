package kvm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

const barBytes = 4 << 20

// aDevice returns a directory like that of a PCI device with memory in sysfs.
func aDevice(t *testing.T, marked bool) string {
	t.Helper()
	dir := t.TempDir()
	mem := bytes.Repeat([]byte{7}, barBytes)
	if marked {
		copy(mem[barBytes-region.PageBytes:], region.Mark())
	}
	for name, data := range map[string][]byte{"resource2": mem, "config": {0, 0, 0, 0, 0, 1}, "enable": []byte("0")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openTestBar(t *testing.T) *bar {
	t.Helper()
	b, err := tryBar(aDevice(t, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// A device without the mark belongs to another program: nothing is written to it.
func TestForeignBar(t *testing.T) {
	dir := aDevice(t, false)
	if _, err := tryBar(dir); !errors.Is(err, errUnmarked) {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "resource2")); err != nil || !bytes.Equal(b, bytes.Repeat([]byte{7}, barBytes)) {
		t.Errorf("its memory has changed, %v", err)
	}
	if err := os.Truncate(filepath.Join(dir, "resource2"), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := tryBar(dir); err == nil || !strings.Contains(err.Error(), "too few") {
		t.Error(err)
	}
	os.Remove(filepath.Join(dir, "resource2"))
	if _, err := tryBar(dir); err == nil || !strings.Contains(err.Error(), "no addresses") {
		t.Error(err)
	}
}

// A device that its firmware left disabled is enabled, and no other is touched.
func TestEnable(t *testing.T) {
	dir := aDevice(t, true)
	for _, c := range []struct {
		config []byte
		want   string
	}{{[]byte{0, 0, 0, 0, 3, 1}, "0"}, {[]byte{0, 0, 0, 0, 1, 1}, "1"}} {
		if err := os.WriteFile(filepath.Join(dir, "config"), c.config, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := enable(dir); err != nil {
			t.Error(err)
		}
		if got := attribute(dir, "enable"); got != c.want {
			t.Errorf("config %x: enable is %s", c.config, got)
		}
	}
}

// The pointer is at the address at which the host reads it.
func TestBarPointer(t *testing.T) {
	b := openTestBar(t)
	want := region.Pointer{Offset: 8192, Boot: 5}
	if err := b.setPointer(&want); err != nil {
		t.Fatal(err)
	}
	if got, err := b.pointer(); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	file, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := region.ParsePointer(file[barBytes-region.PageBytes+region.PointerOffset:], barBytes); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := b.setPointer(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pointer(); err == nil {
		t.Error("it is there still")
	}
	if m, err := b.mark(); err != nil || !region.Marked(m) || region.Used(m) {
		t.Errorf("%x, %v", m[:16], err)
	}
}

// A new allocation contains zeros, whatever its previous contents; and the next agent keeps the allocations of the
// previous one.
func TestBarPieces(t *testing.T) {
	b := openTestBar(t)
	_, control, err := b.controlArea()
	if err != nil || control != 0 {
		t.Fatalf("at %d, %v", control, err)
	}
	const size = 1 << 20
	one, err := b.Create("9-1", size)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if !bytes.Equal(b.part(*one.Part), make([]byte, size)) {
		t.Error("it isn't clear")
	}
	copy(b.part(*one.Part), "secret")
	two, err := b.Create("9-2", size)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if _, err := b.Create("9-3", 4*size); err == nil {
		t.Error("there was no room")
	}

	if _, at, err := b.resume(agent.Record{Boot: 9, Processes: []agent.Client{{Number: 1, At: one.Part}, {Number: 2, At: two.Part}, {Number: 3}}}); err != nil || at != 0 {
		t.Fatalf("at %d, %v", at, err)
	}
	b.Remove("9-1")
	again, err := b.Create("9-4", size)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if *again.Part != *one.Part || !bytes.Equal(b.part(*again.Part), make([]byte, size)) {
		t.Errorf("at %+v, not clear", *again.Part)
	}
	if _, _, err := b.resume(agent.Record{Processes: []agent.Client{{Number: 1, At: &callbuf.Extent{Bytes: size}}}}); err == nil {
		t.Error("a piece in the control area")
	}
}

// An unplugged device is detected, also if another one has replaced it.
func TestGone(t *testing.T) {
	b := openTestBar(t)
	if b.Gone() != nil {
		t.Fatal("it is missed")
	}
	os.Remove(b.path)
	if b.Gone() == nil {
		t.Error("it isn't missed")
	}
	if err := os.WriteFile(b.path, nil, 0o600); err != nil || b.Gone() == nil {
		t.Errorf("another is taken for it, %v", err)
	}
}
