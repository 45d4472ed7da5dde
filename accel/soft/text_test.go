package soft

import (
	"bytes"
	"sync"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// The text read is the text written, without the oldest records where there was no room for all, for any sizes of
// writes and reads.
func TestText(t *testing.T) {
	r := seed(t)
	type record struct {
		of   accel.File
		text []byte
	}
	for range 200 {
		c, waits := new(Context), false
		c.text.init()
		c.OnOutput(func(w bool) { waits = w })
		c.text.mem = make([]byte, 1+r.IntN(200))
		var model []record
		used := 0
		for range 300 {
			if r.IntN(2) == 0 {
				w := record{accel.Stdout, bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(60))}
				to := &c.text.stdout
				if r.IntN(4) == 0 {
					w.of, to = accel.Stderr, &c.text.stderr
				}
				to.Write(w.text)
				if n := recordHeader + len(w.text); n <= len(c.text.mem) {
					for used += n; used > len(c.text.mem); model = model[1:] {
						used -= recordHeader + len(model[0].text)
					}
					model = append(model, w)
				}
			} else {
				to := make([]byte, r.IntN(100))
				n, of, left := c.ReadOutput(to)
				var want []byte
				file := accel.File(0)
				if len(model) > 0 {
					file = model[0].of
				}
				for len(model) > 0 && model[0].of == file && len(want) < len(to) {
					m := &model[0]
					if len(want) > 0 && len(m.text) > len(to)-len(want) {
						break
					}
					part := min(len(m.text), len(to)-len(want))
					want, m.text = append(want, m.text[:part]...), m.text[part:]
					if used -= part; len(m.text) == 0 {
						model = model[1:]
						used -= recordHeader
					}
				}
				if string(to[:n]) != string(want) || of != file || left != uint64(used) {
					t.Fatalf("read %q for %d, %d left; want %q for %d, %d left", to[:n], of, left, want, file, used)
				}
			}
			if waits != (used > 0) {
				t.Fatalf("%d bytes are there; text waits: %v", used, waits)
			}
		}
	}
}

// While a kernel prints without end, each read returns whole records, even while new ones overwrite others.
func TestTextIsNotTorn(t *testing.T) {
	c := new(Context)
	c.text.init()
	c.text.mem = make([]byte, 1000)
	var got []byte
	to := make([]byte, 100)
	for range 500 {
		for range 1 + len(got)%300 {
			c.text.stdout.Write([]byte("la\n"))
		}
		n, _, _ := c.ReadOutput(to)
		got = append(got, to[:n]...)
	}
	if lines := bytes.Count(got, []byte("la\n")); 3*lines != len(got) {
		t.Errorf("%d bytes are %d lines of 3", len(got), lines)
	}
}

const printer = header + `
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .b8 text[7] = {37, 100, 10, 7, 98, 0};
.visible .entry k()
{ .reg .b32 %r; .reg .b64 %a<3>; .local .align 8 .b32 n[2];
mov.u32 %r, %tid.x; st.local.u32 [n], %r; mov.u64 %a1, n; cvta.local.u64 %a1, %a1; mov.u64 %a2, text; cvta.global.u64 %a2, %a2;
call (_), vprintf, (%a2, %a1); ret; }
.visible .entry quiet() { ret; }`

func TestPrintingKernel(t *testing.T) {
	_, c := open(t, nil)
	var mu sync.Mutex
	var outputCalls []bool
	c.OnOutput(func(waits bool) { mu.Lock(); outputCalls = append(outputCalls, waits); mu.Unlock() })
	m := load(t, c, printer)
	submit(t, c, c.DefaultStream(), &accel.Launch{Module: m, Function: 1, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}})
	if c.MayPrint() {
		t.Error("a kernel that does not print has made room for text")
	}
	submit(t, c, c.DefaultStream(), &accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{2, 1, 1}})
	synchronize(t, c)
	to := make([]byte, 100)
	n, of, left := c.ReadOutput(to)
	if string(to[:n]) != "0\n\ab1\n\ab" || of != accel.Stdout || left != 0 || !c.MayPrint() {
		t.Errorf("read %q for %d, %d left", to[:n], of, left)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(outputCalls) != 2 || !outputCalls[0] || outputCalls[1] {
		t.Errorf("told %v", outputCalls)
	}
}

// The ring is accounted as device memory; without any the kernel runs all the same.
func TestMemoryOfText(t *testing.T) {
	d, c := open(t, func(c *Config) { c.Memory = 4 << 20 })
	m := load(t, c, printer)
	before := d.MemoryUsed()
	launch := &accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{2, 1, 1}}
	submit(t, c, c.DefaultStream(), launch)
	synchronize(t, c)
	if n := d.MemoryUsed() - before; n != 1<<20 {
		t.Errorf("the text takes %d bytes, want 1 MiB", n)
	}
	_, r := c.SetLimit(limitPrint, 1<<16)
	want(t, r, cuda.ErrorInvalidValue)

	other := context(t, d)
	m = load(t, other, printer)
	alloc(t, other, 4<<20-d.MemoryUsed())
	launch.Module = m
	submit(t, other, other.DefaultStream(), launch)
	synchronize(t, other)
	if n, _, _ := other.ReadOutput(make([]byte, 10)); n != 0 {
		t.Errorf("%d bytes of text without memory", n)
	}
}
