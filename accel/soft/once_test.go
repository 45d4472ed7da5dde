package soft

import (
	"encoding/binary"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// A warp in which all threads unlock a lock by the same store does it once: a later store would
// unlock it for the block that has taken it meanwhile.
func TestUnlockedOnce(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, header+`
.global .u32 lock;
.visible .entry add(.param .u64 at, .param .u32 times)
{ .reg .u64 %a; .reg .u32 %n, %v, %taken; .reg .pred %first, %p;
ld.param.u64 %a, [at]; ld.param.u32 %n, [times];
mov.u32 %v, %laneid; setp.eq.u32 %first, %v, 0;
again:
@%first atom.global.exch.b32 %taken, [lock], 1;
shfl.sync.idx.b32 %taken, %taken, 0, 31, -1;
setp.ne.u32 %p, %taken, 0;
@%p bra again;
ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v;
membar.gl;
mov.u32 %taken, 0;
st.global.u32 [lock], %taken;
sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0;
@%p bra again;
ret; }`)
	const blocks, times = 8, 2000
	at := alloc(t, c, 4)
	params := binary.LittleEndian.AppendUint64(nil, at)
	params = binary.LittleEndian.AppendUint32(params, times)
	submit(t, c, c.DefaultStream(), &accel.Launch{Module: m, Grid: [3]uint32{blocks, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: params})
	want(t, synchronize(t, c), cuda.Success)
	if got := binary.LittleEndian.Uint32(download(t, c, at, 4)); got != blocks*times {
		t.Errorf("%d additions, want %d", got, blocks*times)
	}
}
