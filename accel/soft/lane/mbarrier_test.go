package lane

import (
	"strings"
	"testing"

	"pegasus/accel/ptx"
)

// An invalid use of an mbarrier, a bulk copy, a cluster or the stack ends the launch.
func TestAsyncFaults(t *testing.T) {
	const first = "setp.eq.u32 %p1, %t, 0;\nmov.u64 %a2, s; cvta.shared.u64 %a3, %a2;\n@!%p1 bra done;\n"
	for _, c := range []struct {
		body, want string
		result     int32
	}{
		{"mbarrier.arrive.shared.b64 _, [s];", "no mbarrier", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s], 1; mbarrier.inval.shared.b64 [s]; mbarrier.test_wait.parity.shared.b64 %p2, [s], 0;", "no mbarrier", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s], 2; mbarrier.arrive.shared.b64 _, [s], 3;", "more arrivals", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s], 0x100000;", "so many", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s], 1; mbarrier.expect_tx.shared.b64 [s], 0x100000;", "more bytes", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s], 1; mbarrier.complete_tx.shared.b64 [s], 0xfffff; mbarrier.complete_tx.shared.b64 [s], 1;", "more bytes", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s+4], 1;", "misaligned", ptx.ErrMisalignedAddress},
		{"mbarrier.init.shared.b64 [s+4096], 1;", "illegal", ptx.ErrIllegalAddress},
		{"mbarrier.init.b64 [%a0], 1;", "in shared memory", ptx.ErrInvalidAddressSpace},
		{"cp.async.bulk.global.shared::cta.bulk_group [%a0], [s], 24;", "16 bytes", ptx.ErrMisalignedAddress},
		{"cp.async.bulk.global.shared::cta.bulk_group [%a0+8], [s], 16;", "misaligned", ptx.ErrMisalignedAddress},
		{"cp.async.bulk.global.shared::cta.bulk_group [%a0+208], [s], 64;", "illegal", ptx.ErrIllegalAddress},
		{"cp.async.bulk.global.shared::cta.bulk_group [%a0], [s], 0xfffffff0;", "illegal", ptx.ErrIllegalAddress},
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%a0], 16, [s+64];", "no mbarrier", ptx.ErrLaunchFailed},
		{"alloca.u64 %a4, 0x100000000;", "stack overflow", ptx.ErrHardwareStack},
		{"alloca.u64 %a4, -1;", "stack overflow", ptx.ErrHardwareStack},
		{"alloca.u32 %r1, 100, 65536; alloca.u32 %r1, 0x10001;", "stack overflow", ptx.ErrHardwareStack},
		{"again: alloca.u64 %a4, 0; stacksave.u64 %a4; sub.u64 %a4, %a4, 8; stackrestore.u64 %a4;", "no earlier state", ptx.ErrLaunchFailed},
		{"mbarrier.init.shared.b64 [s], 1; .reg .b16 %h; mov.b16 %h, 2; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [s+16], [%a0], 16, [s], %h;", "no such block", ptx.ErrIllegalAddress},
		{"st.bulk.shared::cta [s], 12, 0;", "8 bytes", ptx.ErrMisalignedAddress},
		{"st.bulk.shared::cta [s+4088], 16, 0;", "illegal", ptx.ErrIllegalAddress},
		{"st.bulk [%a0], 16, 0;", "of shared memory", ptx.ErrInvalidAddressSpace},
		{"mapa.u64 %a3, %a3, 1;", "no such block", ptx.ErrIllegalAddress},
		{"done: @%p1 bar.sync 1, 96; barrier.cluster.arrive; barrier.cluster.wait;", "deadlock", ptx.ErrLaunchFailed},
	} {
		d := newDevice(t)
		out := d.buffer(4 * 64)
		text := first + c.body
		if !strings.Contains(text, "done: ") {
			text += "\ndone:"
		}
		k := d.kernel(d.load(entry(text)), "k")
		if f := k.Run(d.launch(k, x(1), x(64), out, 0)); f == nil || f.Result != c.result || !strings.Contains(f.Msg, c.want) {
			t.Errorf("%s %+v, want result %d: %s", c.body, f, c.result, c.want)
		}
	}
}

// A cluster waits for those of its threads that haven't ended, wherever they arrive.
func TestClusterBarrier(t *testing.T) {
	d := newDevice(t)
	out := d.buffer(4 * 600)
	k := d.kernel(d.load(entry(`
	mov.u32 %r3, 0;
	setp.ge.u32 %p1, %t, 590; @%p1 exit;
	setp.eq.u32 %p2, %t, 300; setp.ge.u32 %p3, %t, 580;
again:
	@%p2 st.volatile.shared.u32 [s], %r3;
	@%p2 bra other;
	barrier.cluster.arrive;
	bra met;
other:	barrier.cluster.arrive.release;
met:	@%p3 exit; // having arrived
	barrier.cluster.wait;
	ld.volatile.shared.u32 %r1, [s];
	setp.ne.u32 %p1, %r1, %r3; @%p1 trap;
	barrier.cluster.arrive; barrier.cluster.wait;
	add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 20; @%p1 bra again;
	st.global.u32 [%a0], %r3;
`)), "k")
	d.run(k, x(1), x(600), out, 0)
	for i := range 600 {
		want := uint32(20)
		if i >= 580 {
			want = 0
		}
		if got := out.word(i); got != want {
			t.Fatalf("thread %d: %d rounds, want %d", i, got, want)
		}
	}
}
