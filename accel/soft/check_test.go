package soft

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// Each kernel stores at an address and loads from it: %rd1 is the address.
var besideKernels = map[string]string{
	"plain":   "st.global.u32 [%rd1], 7; ld.global.u32 %r1, [%rd1];",
	"generic": "st.u32 [%rd1], 7; ld.u32 %r1, [%rd1];",
	"vector":  "mov.u32 %r1, 7; st.global.v2.u32 [%rd1], {%r1, %r1}; ld.global.v2.u32 {%r1, %r2}, [%rd1]; min.u32 %r1, %r1, %r2;",
	"wide":    "mov.u64 %rd3, 7; st.global.u64 [%rd1], %rd3; ld.global.u64 %rd3, [%rd1]; cvt.u32.u64 %r1, %rd3;",
	"bytes":   "st.global.u8 [%rd1], 7; ld.global.u8 %r1, [%rd1];",
	"atomic":  "atom.global.exch.b32 %r1, [%rd1], 3; atom.global.add.u32 %r1, [%rd1], 4; ld.global.u32 %r1, [%rd1];",
	"looks":   "st.volatile.global.u32 [%rd1], 7; ld.volatile.global.u32 %r1, [%rd1];",
	"offset":  "add.u64 %rd1, %rd1, 4096; st.global.u32 [%rd1-4096], 7; ld.global.u32 %r1, [%rd1+-4096];",
	"rows":    "mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 8; add.u64 %rd1, %rd1, %rd3; st.global.u32 [%rd1], 7; ld.global.u32 %r1, [%rd1];",
}

func besideModule(body string) string {
	return header + `.visible .global .align 4 .b32 u[1024]; .visible .global .align 4 .b32 v[1024];
.visible .entry k(.param .u64 at, .param .u64 out) {
.reg .u64 %rd<8>; .reg .u32 %r<8>;
ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [out];
` + body + `
st.global.u32 [%rd2], %r1; ret; }`
}

// launchBeside runs such a kernel with so many threads and returns the context's error and the values loaded.
func launchBeside(t *testing.T, c *Context, m *Module, at uint64, threads uint32, out uint64) (cuda.Result, uint32) {
	t.Helper()
	params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at), out)
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), &accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1}, Params: params}, w.done), cuda.Success)
	if r := w.wait(t); r != cuda.Success {
		return r, 0
	}
	return cuda.Success, binary.LittleEndian.Uint32(download(t, c, out, 4))
}

// Accesses a little beside an allocation or a variable have no consequences, as on devices, which map whole pages.
func TestBesideAllocations(t *testing.T) {
	for name, body := range besideKernels {
		t.Run(name, func(t *testing.T) {
			_, c := open(t, nil)
			m := load(t, c, besideModule(body))
			u := m.Layout().Globals[0].Address // the first allocation
			big := alloc(t, c, 8<<20)
			out := alloc(t, c, 64)
			for where, at := range map[string]uint64{
				"before the first variable": u - 8, "behind an allocation": big + 8<<20, "far behind it": big + 8<<20 + 32768, "a row before the first variable": u - 8192,
			} {
				if r, got := launchBeside(t, c, m, at, 1, out); r != cuda.Success || got != 7 {
					t.Errorf("%s: %v, %d", where, r, got)
				}
			}
			for i, b := range download(t, c, big, 8<<20) {
				if b != 0 {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
			if r, got := launchBeside(t, c, m, u-512, 128, out); name == "rows" && (r != cuda.Success || got != 7) { // some are beside, others not
				t.Errorf("across the beginning: %v, %d", r, got)
			}
			if r, _ := launchBeside(t, c, m, big+8<<20+1<<20, 1, out); r != cuda.ErrorIllegalAddress {
				t.Errorf("a MiB behind an allocation: %v", r)
			}
		})
	}
}

// The check of bounds reports each of these accesses, and those in the memory of another allocation or between its last byte and the
// next granule, by allocation, offset and line.
func TestCheckBounds(t *testing.T) {
	for name, body := range besideKernels {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int64{-8, 100, 104, 504, 512, 4096} {
				faults := make(chan string, 1)
				d, c := open(t, func(c *Config) { c.OnFault = func(_ cuda.Result, text string) { faults <- text } })
				d.Check(accel.Checks{Bounds: true})
				m := load(t, c, besideModule(body))
				some := []uint64{alloc(t, c, 100), alloc(t, c, 100), alloc(t, c, 100)}
				slices.Sort(some)
				out := alloc(t, c, 4)
				if r, got := launchBeside(t, c, m, some[1]+88, 1, out); r != cuda.Success || got != 7 {
					t.Errorf("within an allocation: %v, %d", r, got)
				}
				if r, _ := launchBeside(t, c, m, some[1]+uint64(at), 1, out); r != cuda.ErrorIllegalAddress {
					t.Errorf("offset %d: %v", at, r)
					continue
				}
				form := fmt.Sprintf(`PTX line 8: illegal address, address 0x[0-9a-f]+, offset %d of the allocation of 100 bytes at %#x$`, at, some[1])
				if got := <-faults; !regexp.MustCompile(form).MatchString(got) {
					t.Errorf("%q, want %s", got, form)
				}
			}
		})
	}
	faults := make(chan string, 1)
	d, c := open(t, func(c *Config) { c.OnFault = func(_ cuda.Result, text string) { faults <- text } })
	d.Check(accel.Checks{Bounds: true})
	m := load(t, c, besideModule(besideKernels["wide"]))
	a, out := alloc(t, c, 100), alloc(t, c, 4)
	if r, _ := launchBeside(t, c, m, a+96, 1, out); r != cuda.ErrorIllegalAddress {
		t.Errorf("an access that begins within: %v", r)
	}
	if got, want := <-faults, "illegal address: an access of 8 bytes, of which only the first 4 are there, address"; !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("%q, want %q", got, want)
	}
}
