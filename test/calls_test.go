package test

import (
	"bytes"
	"testing"
)

const oneDomain = oneAccelerator + "[[domain]]\nname = \"one\"\n"

// A guest allocates, fills, copies and reads back, on streams and with events.
func TestCalls(t *testing.T) {
	h := startHost(t, oneDomain)
	c := h.dial("one")
	if err := c.Ping(); err != nil {
		t.Fatal(err)
	}
	x := newContext(t, c)
	const n = 3 << 20
	a, err := x.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("pegasus "), n/8)
	if err := x.CopyIn(a, text); err != nil {
		t.Fatal(err)
	}
	s, err := x.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := x.NewEvent(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Fill(s, a+8, 'x', 8); err != nil {
		t.Fatal(err)
	}
	if err := x.Record(s, e, 1); err != nil {
		t.Fatal(err)
	}
	if err := x.SynchronizeEvent(e); err != nil {
		t.Fatal(err)
	}
	if got := c.EventSerial(uint64(e)); got != 1 {
		t.Errorf("the event's word holds %d, want 1", got)
	}
	copy(text[8:], "xxxxxxxx")
	got := make([]byte, n)
	if err := x.CopyOut(got, a); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, text) {
		t.Error("what came back is not what was written")
	}
	d := h.domains()["one"]
	if d.GPU == 0 || d.Calls == 0 || d.Memory < n {
		t.Errorf("the domain is shown as %+v", d)
	}
	if err := x.Free(a); err != nil {
		t.Fatal(err)
	}
	if err := x.Destroy(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually(t, soon, "the worker is gone", func() bool { return h.domains()["one"].Processes == 0 })
}
