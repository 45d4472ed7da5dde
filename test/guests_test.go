package test

import (
	"errors"
	"path/filepath"
	"testing"

	"pegasus/cuda"
	"pegasus/frontend"
)

// dial makes the test's process a guest of a declared domain.
func (h *host) dial(domain string) *frontend.Client {
	h.t.Helper()
	c, err := frontend.Dial(filepath.Join(h.dir, "domains", domain+".sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// newContext returns a context on the first device.
func newContext(t testing.TB, c *frontend.Client) *frontend.Context {
	t.Helper()
	x, err := c.NewContext(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// kernels are small kernels for the tests.
const kernels = `
.version 6.0
.target sm_50
.address_size 64

.visible .entry store(.param .u64 at, .param .u32 value)
{
	.reg .u64 %a;
	.reg .u32 %v;
	ld.param.u64 %a, [at];
	ld.param.u32 %v, [value];
	st.global.u32 [%a], %v;
	ret;
}

.visible .entry endless(.param .u64 at)
{
	.reg .u64 %a;
	.reg .u32 %v;
	ld.param.u64 %a, [at];
again:
	ld.volatile.global.u32 %v, [%a];
	bra.uni again;
}

.visible .entry count(.param .u64 at, .param .u32 rounds)
{
	.reg .u64 %a;
	.reg .u32 %v, %n;
	.reg .pred %p;
	ld.param.u64 %a, [at];
	ld.param.u32 %n, [rounds];
	mov.u32 %v, 0;
more:
	add.u32 %v, %v, 1;
	setp.lt.u32 %p, %v, %n;
	@%p bra more;
	st.global.u32 [%a], %v;
	ret;
}
`

// loaded is a context with the kernels above.
type loaded struct {
	*frontend.Context
	*frontend.Module
	t testing.TB
}

func load(t testing.TB, c *frontend.Client) loaded {
	t.Helper()
	x := newContext(t, c)
	m, log, err := x.LoadModule([]byte(kernels))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return loaded{x, m, t}
}

func le64(v uint64) (b []byte) {
	for range 8 {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
}

func (l loaded) launch(kernel string, at uint64, more ...uint32) error {
	l.t.Helper()
	f, err := l.Function(kernel)
	if err != nil {
		l.t.Fatal(err)
	}
	params := le64(at)
	for _, v := range more {
		params = append(params, le64(uint64(v))[:4]...)
	}
	return l.Launch(0, f, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, params)
}

// works fails the test unless the guest can allocate, compute and read back.
func (l loaded) works() {
	l.t.Helper()
	at, err := l.Alloc(4096)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.launch("store", at, 12345); err != nil {
		l.t.Fatal(err)
	}
	b := make([]byte, 4)
	if err := l.CopyOut(b, at); err != nil {
		l.t.Fatal(err)
	}
	if got := uint32(b[0]) | uint32(b[1])<<8; got != 12345 {
		l.t.Fatalf("a kernel stored %d, want 12345", got)
	}
	if err := l.Free(at); err != nil {
		l.t.Fatal(err)
	}
}

// wantResult fails the test unless err is the CUDA result.
func wantResult(t testing.TB, err error, want cuda.Result) {
	t.Helper()
	var r cuda.Result
	if !errors.As(err, &r) || r != want {
		t.Fatalf("got %v, want %v", err, want)
	}
}
