package lane

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel/soft/lane/arith"
)

// gridOf runs a body in a grid of blocks, on one core and on two. %b is the block's number, %n the number of blocks.
func gridOf(t *testing.T, blocks, threads int, body string, check func(t *testing.T, out buffer)) {
	t.Helper()
	for _, cores := range []int{1, 2} {
		d := newDevice(t)
		out := d.buffer(4 * (blocks + 1))
		k := d.kernel(d.load(entry("mov.u32 %r20, %ctaid.x; mul.wide.u32 %a8, %r20, 4; add.u64 %a8, %o, %a8; ld.param.u32 %r21, [n];"+body)), "k")
		l := d.launch(k, x(blocks), x(threads), out, blocks)
		l.Cores = cores
		if f := k.Run(l); f != nil {
			t.Fatalf("%d cores: %v", cores, f)
		}
		check(t, out)
	}
}

// Every block adds to a counter and waits until all have: so the whole grid has to be begun.
func TestGridBarrier(t *testing.T) {
	for _, wait := range []string{"ld.volatile.global.u32 %r2, [%a2];", "ld.acquire.gpu.global.u32 %r2, [%a2];", "atom.global.add.u32 %r2, [%a2], 0;",
		"atom.global.max.u32 %r2, [%a2], %r30;", "ld.global.cg.u32 %r2, [%a2];", "ld.global.cv.u32 %r2, [%a2];", "membar.gl; ld.global.u32 %r2, [%a2];", "nanosleep.u32 20; ld.u32 %r2, [%a2];"} {
		const blocks = 100
		gridOf(t, blocks, 64, `
	mul.wide.u32 %a2, %r21, 4; add.u64 %a2, %o, %a2; mov.u32 %r30, 0;
	setp.ne.u32 %p1, %t, 0;
	@%p1 bra wait;
	atom.global.add.u32 %r1, [%a2], 1;
spin:	`+wait+`
	setp.lt.u32 %p2, %r2, %r21;
	@%p2 bra spin;
wait:	bar.sync 0;
	@%p1 bra end;
	ld.volatile.global.u32 %r2, [%a2];
	st.global.u32 [%a8], %r2;
end:`, func(t *testing.T, out buffer) {
			for i := range blocks + 1 {
				if out.word(i) != blocks {
					t.Fatalf("%s word %d is %d", wait, i, out.word(i))
				}
			}
		})
	}
}

// Blocks that watch a clock are all begun before the first one ends, and their core may be ceded once they only wait. A loop
// that stores reads a clock, but does not wait for it.
func TestBlocksThatWatchAClock(t *testing.T) {
	const blocks = 12
	for _, stores := range []bool{false, true} {
		d := newDevice(t)
		out := d.buffer(4 * (blocks + 1))
		store, wait := "", time.Second // in which all blocks can begin, on a busy machine too
		if stores {
			store, wait = "st.global.u32 [%a8], %r2;", 100*time.Millisecond
		}
		k := d.kernel(d.load(entry(`mov.u32 %r20, %ctaid.x; mul.wide.u32 %a8, %r20, 4; add.u64 %a8, %o, %a8; ld.param.u32 %r21, [n];
	mul.wide.u32 %a2, %r21, 4; add.u64 %a2, %o, %a2;
	mov.u64 %a3, %globaltimer;
	red.global.add.u32 [%a2], 1;
wait:	mov.u64 %a4, %clock64; mov.u32 %r2, 7;
	sub.u64 %a4, %a4, %a3;
	`+store+`
	setp.lt.u64 %p1, %a4, `+fmt.Sprint(wait.Nanoseconds())+`;
	@%p1 bra wait;
	ld.volatile.global.u32 %r2, [%a2];
	st.global.u32 [%a8], %r2;`)), "k")
		l := d.launch(k, x(blocks), x(1), out, blocks)
		var ceded atomic.Int32 // by several cores
		l.Cede = func() { ceded.Add(1) }
		if f := k.Run(l); f != nil {
			t.Fatal(f)
		}
		if stores {
			if n := ceded.Load(); n != 0 {
				t.Errorf("the core of a loop that stores was ceded %d times", n)
			}
			continue
		}
		for i := range blocks {
			if out.word(i) != blocks {
				t.Errorf("block %d ended when %d had begun", i, out.word(i))
			}
		}
		if ceded.Load() == 0 {
			t.Error("the core was not ceded")
		}
	}
}

// Each block waits for the one after it, so that the last ends first.
func TestBlocksWaitForLaterOnes(t *testing.T) {
	const blocks = 300
	gridOf(t, blocks, 32, `
	add.u32 %r1, %r20, 1;
	mov.u32 %r2, 1;
	setp.eq.u32 %p1, %r1, %r21;
	@%p1 bra store;
spin:	ld.volatile.global.u32 %r2, [%a8+4];
	setp.eq.u32 %p2, %r2, 0;
	@%p2 bra spin;
	add.u32 %r2, %r2, 1;
store:	st.volatile.global.u32 [%a8], %r2;`, func(t *testing.T, out buffer) {
		for i := range blocks {
			if want := uint32(blocks - i); out.word(i) != want {
				t.Fatalf("block %d: %d, want %d", i, out.word(i), want)
			}
		}
	})
}

// Blocks that are put aside in the middle of long loops still end.
func TestLongBlocks(t *testing.T) {
	const blocks = 5
	turns := arith.Pick(testing.Short(), 3<<20, 3<<17) // enough for many turns also under the race detector, which is slow
	gridOf(t, blocks, 1, fmt.Sprintf(`
	mov.u32 %%r1, 0; mov.u32 %%r2, %%r20;
loop:	mad.lo.u32 %%r2, %%r2, 5, %%r1;
	add.u32 %%r1, %%r1, 1;
	setp.lt.u32 %%p1, %%r1, %d;
	@%%p1 bra loop;
	st.global.u32 [%%a8], %%r2;`, turns), func(t *testing.T, out buffer) {
		for b := range uint32(blocks) {
			want := b
			for i := range uint32(turns) {
				want = want*5 + i
			}
			if got := out.word(int(b)); got != want {
				t.Fatalf("block %d: %#x, want %#x", b, got, want)
			}
		}
	})
}

// The barrier of the whole grid as cooperative groups implement it: two registers give the address of its workspace,
// unless the launch is not cooperative.
func TestCooperativeLaunch(t *testing.T) {
	const blocks, rounds = 20, 3
	text := entry(`
	mov.b64 %a2, {%envreg2, %envreg1};
	setp.eq.s64 %p1, %a2, 0;
	@%p1 bra end;
	mov.u32 %r20, %ctaid.x; mov.u32 %r21, %nctaid.x; ld.u32 %r10, [%a2]; add.s64 %a2, %a2, 4;
	mul.wide.u32 %a3, %r20, 4; add.u64 %a3, %o, %a3;
	add.u32 %r9, %r20, 1; rem.u32 %r9, %r9, %r21; mul.wide.u32 %a4, %r9, 4; add.u64 %a4, %o, %a4;
	mov.u32 %r8, 0;
round:	setp.ne.u32 %p2, %t, 0;
	@!%p2 ld.volatile.global.u32 %r7, [%a4];
	barrier.sync 0;
	mov.u32 %r6, 0;
meet:	@%p2 bra met;
	setp.eq.u32 %p3, %r20, 0; sub.u32 %r1, 0x80000001, %r21; selp.b32 %r1, %r1, 1, %p3;
	fence.acq_rel.gpu;
	atom.add.release.gpu.u32 %r2, [%a2], %r1;
spin:	ld.acquire.gpu.u32 %r3, [%a2];
	xor.b32 %r3, %r3, %r2; setp.gt.s32 %p3, %r3, -1; @%p3 bra spin;
met:	barrier.sync 0;
	setp.ne.u32 %p3, %r6, 0; @%p3 bra next;
	add.u32 %r7, %r7, %r20; add.u32 %r7, %r7, %r10;
	@!%p2 st.volatile.global.u32 [%a3], %r7;
	mov.u32 %r6, 1; bra meet;
next:	add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 3; @%p3 bra round;
end:`)
	for _, cores := range []int{1, 2} {
		for _, cooperative := range []bool{true, false} {
			d := newDevice(t)
			out := d.buffer(4 * blocks)
			k := d.kernel(d.load(text), "k")
			l := d.launch(k, x(blocks), x(40), out, 0)
			l.Cores, l.Cooperative = cores, cooperative
			if f := k.Run(l); f != nil {
				t.Fatal(f)
			}
			var want [blocks]uint32
			for range rounds {
				before := want
				for b := range want {
					want[b] = before[(b+1)%blocks] + uint32(b) + 8
				}
			}
			for b := range want {
				if !cooperative {
					want[b] = 0
				}
				if out.word(b) != want[b] {
					t.Fatalf("cooperative %v, %d cores: block %d has %d, not %d", cooperative, cores, b, out.word(b), want[b])
				}
			}
		}
	}
}
