package soft

import (
	"encoding/binary"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// Kernels of one block that count themselves and wait: all for all, or each for a clock. Each then reports how many it has seen.
const gathering = header + `
.visible .entry gather(.param .u64 words, .param .u32 number, .param .u32 awaited)
{ .reg .u64 %w, %o; .reg .u32 %i, %n, %v; .reg .pred %p;
ld.param.u64 %w, [words]; ld.param.u32 %i, [number]; ld.param.u32 %n, [awaited];
cvta.to.global.u64 %w, %w;
mad.wide.u32 %o, %i, 4, %w;
atom.global.add.u32 %v, [%w], 1;
again:
ld.volatile.global.u32 %v, [%w];
setp.lt.u32 %p, %v, %n;
@%p bra again;
st.global.u32 [%o+4], %v;
ret; }
.func (.param .u32 time) now()
{ .reg .u32 %t; .local .align 8 .b8 %frame[8];
mov.u32 %t, %clock;
st.local.u32 [%frame], %t; ld.local.u32 %t, [%frame];
st.param.u32 [time], %t;
ret; }
.visible .entry delay(.param .u64 words, .param .u32 number, .param .u32 ticks)
{ .reg .u64 %w, %o; .reg .u32 %i, %n, %v, %t; .reg .pred %p; .local .align 8 .b8 %frame[8];
ld.param.u64 %w, [words]; ld.param.u32 %i, [number]; ld.param.u32 %n, [ticks];
cvta.to.global.u64 %w, %w;
mad.wide.u32 %o, %i, 4, %w;
red.global.add.u32 [%w], 1;
{ .param .u32 r; call (r), now; ld.param.u32 %v, [r]; }
st.local.u32 [%frame+4], %v;
again:
{ .param .u32 r; call (r), now; ld.param.u32 %t, [r]; }
ld.local.u32 %v, [%frame+4];
sub.u32 %t, %t, %v;
st.local.u32 [%frame], %t;
ld.local.u32 %t, [%frame];
setp.lt.u32 %p, %t, %n;
@%p bra again;
ld.volatile.global.u32 %v, [%w];
st.global.u32 [%o+4], %v;
ret; }`

// Kernels that only wait leave their cores to others, so more of them run at the same time than there are cores.
func TestWaitingKernelsShareCores(t *testing.T) {
	const kernels = 10
	for name, turn := range map[string]accel.Turn{"without turns": nil, "with turns": newTurns(true)} {
		t.Run(name, func(t *testing.T) {
			d, c := open(t, func(c *Config) { c.Turn, c.KernelTimeout = turn, (5 * time.Second).Nanoseconds() })
			m := load(t, c, gathering)
			for i, last := range []uint32{kernels, 2_000_000_000} {
				words := alloc(t, c, 4*(kernels+1))
				submit(t, c, c.DefaultStream(), accel.Fill{Address: words, Width: kernels + 1, Height: 1, ElementSize: 4})
				want(t, synchronize(t, c), cuda.Success)
				for n := range uint32(kernels) {
					params := binary.LittleEndian.AppendUint64(nil, words)
					params = binary.LittleEndian.AppendUint32(params, n)
					params = binary.LittleEndian.AppendUint32(params, last)
					l := launchOf(m, params...)
					l.Function = i
					submit(t, c, stream(t, c, 1), l)
				}
				want(t, synchronize(t, c), cuda.Success)
				for n, b := 0, download(t, c, words, 4*(kernels+1))[4:]; n < kernels; n++ {
					if seen := binary.LittleEndian.Uint32(b[4*n:]); seen != kernels {
						t.Errorf("%s: kernel %d ended after %d had begun", m.functions[i].layout.Name, n, seen)
					}
				}
			}
			e := d.executors[engine.Compute]
			happens(t, "no goroutine waits for a core", func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return len(e.waits) == 0 && len(e.crew) == 0
			})
		})
	}
}
