package lane

import (
	"fmt"
	"strings"
	"testing"
)

// When programs exceed the total size, they are dropped, except those launched last, and compiled again for the next
// launch.
func TestPrograms(t *testing.T) {
	compiledNow.mu.Lock()
	most, bytes, list := compiledNow.most, compiledNow.bytes, compiledNow.kept // of other tests
	compiledNow.bytes, compiledNow.kept = 0, nil
	compiledNow.mu.Unlock()
	defer func() {
		compiledNow.mu.Lock()
		defer compiledNow.mu.Unlock()
		compiledNow.most, compiledNow.bytes, compiledNow.kept = most, bytes, list
	}()
	const kernels = 20
	var text strings.Builder
	text.WriteString(".version 7.0\n.target sm_75\n.address_size 64\n")
	for i := range kernels {
		fmt.Fprintf(&text, ".entry k%d(.param .u64 out) { .reg .b64 %%a; .reg .b32 %%r; ld.param.u64 %%a, [out]; %s mov.u32 %%r, %d; st.global.u32 [%%a], %%r; ret; }\n",
			i, strings.Repeat("st.global.u32 [%a], 7; ", compiledAtOnce/kernels+1), i)
	}
	d := newDevice(t)
	im := d.load([]byte(text.String()))
	out := d.buffer(4)
	run := func(i int) {
		t.Helper()
		d.run(d.kernel(im, fmt.Sprintf("k%d", i)), x(1), x(1), out)
		if got := out.word(0); got != uint32(i) {
			t.Fatalf("kernel %d stored %d", i, got)
		}
	}
	run(0)
	compiledNow.mu.Lock()
	compiledNow.most = compiledNow.bytes + 3*im.kernels["k0"].prog.Load().Bytes()
	compiledNow.mu.Unlock()
	for range 3 {
		for i := range kernels {
			run(i)
			run(0) // stays
			if im.kernels["k0"].prog.Load() == nil {
				t.Fatalf("the program of a kernel that is launched all the time was dropped after that of kernel %d", i)
			}
		}
	}
	left := 0
	for _, k := range im.kernels {
		if k.prog.Load() != nil {
			left++
		}
	}
	if left > 10 {
		t.Errorf("%d of %d programs are kept, want fewer", left, kernels)
	}
}
