package soft

import (
	"strings"
	"testing"

	"pegasus/cuda"
)

const heapKernels = header + `
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.global .u64 kept;
.visible .entry take(.param .u64 n) { .reg .b64 %a<3>; .reg .pred %p; ld.param.u64 %a0, [n]; call (%a1), malloc, (%a0); st.global.u64 [kept], %a1;
setp.eq.u64 %p, %a1, 0; @%p ret; st.u64 [%a1], 42; ret; }
.visible .entry give() { .reg .b64 %a<3>; .reg .pred %p; ld.global.u64 %a1, [kept]; ld.u64 %a2, [%a1]; setp.ne.u64 %p, %a2, 42; @%p trap; call free, (%a1); ret; }
.func (.param .b32 r) down(.param .b32 n) { .reg .pred %p; .reg .b32 %n, %m; ld.param.u32 %n, [n]; st.param.u32 [r], 1; setp.eq.u32 %p, %n, 0; @%p ret;
sub.u32 %m, %n, 1; call (%m), down, (%m); add.u32 %m, %m, %n; st.param.u32 [r], %m; ret; }
.visible .entry deep(.param .u32 n) { .reg .b32 %n; ld.param.u32 %n, [n]; call (%n), down, (%n); ret; }
`

// runKernel launches one thread and returns the result.
func runKernel(t *testing.T, c *Context, m *Module, name string, params ...byte) cuda.Result {
	t.Helper()
	for i, f := range m.layout.Functions {
		if f.Name == name {
			l := launchOf(m, params...)
			l.Function = i
			submit(t, c, c.DefaultStream(), l)
			return synchronize(t, c)
		}
	}
	t.Fatal("no kernel", name)
	return 0
}

// A kernel's allocations live on, in a heap of the context. A limit sets the heap's size.
func TestDeviceHeap(t *testing.T) {
	d, c := open(t, nil)
	m := load(t, c, heapKernels)
	before := d.MemoryUsed()
	v, r := c.SetLimit(limitHeap, 1<<20)
	want(t, r, cuda.Success)
	if v != 1<<20 || d.MemoryUsed() != before {
		t.Fatal("limit:", v, "used:", d.MemoryUsed()-before)
	}
	want(t, runKernel(t, c, m, "take", 0, 0, 0x10, 0, 0, 0, 0, 0), cuda.Success) // all of the heap
	if n := d.MemoryUsed() - before; n != 1<<20 {
		t.Fatal("used:", n)
	}
	_, r = c.SetLimit(limitHeap, 2<<20)
	want(t, r, cuda.ErrorInvalidValue)
	want(t, runKernel(t, c, m, "give"), cuda.Success)
	want(t, runKernel(t, c, m, "take", 0, 0, 0x20, 0, 0, 0, 0, 0), cuda.Success) // more: null
	want(t, runKernel(t, c, m, "give"), cuda.ErrorIllegalAddress)
}

func TestFreeTwice(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, strings.ReplaceAll(heapKernels, "call free, (%a1);", "call free, (%a1); call free, (%a1);"))
	want(t, runKernel(t, c, m, "take", 100, 0, 0, 0, 0, 0, 0, 0), cuda.Success)
	want(t, runKernel(t, c, m, "give"), cuda.ErrorLaunchFailed)
}

// A heap that finds no memory fails the launch, not the context.
func TestNoMemoryForHeap(t *testing.T) {
	_, c := open(t, func(c *Config) { c.Memory = 4 << 20 })
	m := load(t, c, heapKernels)
	r := c.Submit(c.DefaultStream(), launchOf(m, make([]byte, 8)...), nil)
	want(t, r, cuda.ErrorOutOfMemory)
	_, r = c.SetLimit(limitHeap, 1<<20)
	want(t, r, cuda.Success)
	want(t, runKernel(t, c, m, "take", 100, 0, 0, 0, 0, 0, 0, 0), cuda.Success)
}

// Recursion goes as deep as the stack limit lets it; beyond, the context is lost.
func TestStackLimit(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, heapKernels)
	_, r := c.SetLimit(limitStack, 512<<10)
	want(t, r, cuda.Success)
	want(t, runKernel(t, c, m, "deep", 0, 16, 0, 0), cuda.Success) // 4096
	_, r = c.SetLimit(limitStack, 1024)
	want(t, r, cuda.Success)
	want(t, runKernel(t, c, m, "deep", 100, 0, 0, 0), cuda.Success)
	want(t, runKernel(t, c, m, "deep", 0, 16, 0, 0), cuda.ErrorHardwareStackError)
	want(t, c.Err(), cuda.ErrorHardwareStackError)
}
