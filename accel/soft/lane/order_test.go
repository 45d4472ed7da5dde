package lane

import (
	"slices"
	"testing"
)

// In each kernel all threads read a word, which is 1, after a barrier, and warp 0 stores another number there with no
// barrier between. That is a race, which is harmless on a GPU: all warps have read before warp 0 reaches the store.
var broadcasts = map[string]string{
	"shared": `setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [s], 1; bar.sync 0;
		ld.shared.u32 %r2, [s]; setp.lt.u32 %p2, %t, 32; @%p2 st.shared.u32 [s], 2; st.global.u32 [%a0], %r2;`,
	"generic": `mov.u64 %a3, s; cvta.shared.u64 %a3, %a3; setp.eq.u32 %p1, %t, 0; @%p1 st.u32 [%a3], 1; barrier.sync.aligned 0;
		ld.u32 %r2, [%a3]; setp.lt.u32 %p2, %t, 32; @%p2 st.u32 [%a3], 2; st.global.u32 [%a0], %r2;`,
	"global": `setp.eq.u32 %p1, %t, 0; @%p1 st.global.u32 [lock], 1; bar.sync 0;
		ld.global.u32 %r2, [lock]; setp.lt.u32 %p2, %t, 32; @%p2 st.global.u32 [lock], 2; st.global.u32 [%a0], %r2;`,
	"atomic": `setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [s], 1; bar.sync 0;
		ld.shared.u32 %r2, [s]; setp.lt.u32 %p2, %t, 32; @%p2 atom.shared.exch.b32 %r3, [s], 2; st.global.u32 [%a0], %r2;`,
	"branch": `setp.ne.u32 %p1, %t, 0; @%p1 bra ready; st.shared.u32 [s], 1; ready: bar.sync 0;
		ld.shared.u32 %r2, [s]; setp.ge.u32 %p2, %t, 32; @%p2 bra over; st.shared.u32 [s], 2; over: st.global.u32 [%a0], %r2;`,
	// The warps wait at barriers of their own in the code, as GCC's worker that broadcasts and those that listen.
	"apart": `setp.ge.u32 %p1, %t, 32; @%p1 bra others;
		st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r2, [s]; st.shared.u32 [s], 2; bra over;
		others: bar.sync 0; ld.shared.u32 %r2, [s];
		over: st.global.u32 [%a0], %r2;`,
	// Two words, copied one by one to local memory by generic addresses, before the next broadcast.
	"copied": `.local .align 4 .b32 own[2]; mov.u64 %a3, own; cvta.local.u64 %a3, %a3; mov.u64 %a4, s; cvta.shared.u64 %a4, %a4;
		setp.eq.u32 %p1, %t, 0; @%p1 st.u32 [%a4], 1; @%p1 st.u32 [%a4+4], 1; bar.sync 0; mov.u32 %r1, 2;
		again: sub.u32 %r1, %r1, 1; ld.u32 %r2, [%a4]; st.u32 [%a3], %r2; add.u64 %a4, %a4, 4; add.u64 %a3, %a3, 4; setp.ne.u32 %p2, %r1, 0; @%p2 bra again;
		setp.ge.u32 %p2, %t, 32; @%p2 bra over; st.shared.u32 [s+4], 2; over: st.global.u32 [%a0], %r2;`,
	// Warps that store something else first are at the load when warp 0 is.
	"later": `setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [s], 1; bar.sync 0;
		st.shared.u32 [s+64], %t; st.shared.u32 [s+68], %t; ld.shared.u32 %r2, [s]; setp.lt.u32 %p2, %t, 32; @%p2 st.shared.u32 [s], 2; st.global.u32 [%a0], %r2;`,
	// One more time, for the stores that the barrier before still counts.
	"twice": `setp.eq.u32 %p1, %t, 0; mov.u32 %r1, 20;
		again: @%p1 st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r2, [s]; setp.lt.u32 %p2, %t, 32; @%p2 st.shared.u32 [s], 2; bar.sync 0;
		sub.u32 %r1, %r1, 1; setp.ne.u32 %p3, %r1, 0; @%p3 bra again; st.global.u32 [%a0], %r2;`,
}

func TestWarpsKeepPace(t *testing.T) {
	for name, body := range broadcasts {
		for threads := 32; threads <= 1024; threads *= 2 {
			d := newDevice(t)
			out := d.buffer(4 * threads)
			k := d.kernel(d.load(entry(body)), "k")
			l := d.launch(k, x(1), x(threads), out, threads)
			if name == "shared" { // a profile changes nothing
				l.Profile = new(Profile)
			}
			if f := k.Run(l); f != nil {
				t.Fatal(name, f)
			}
			late := 0
			for i := range threads {
				if out.word(i) != 1 {
					late++
				}
			}
			if late > 0 {
				t.Errorf("%s: %d of %d threads read what warp 0 wrote later", name, late, threads)
			}
		}
	}
}

// A random order exposes the race, the same one with the same seed, and code without races gives the usual result.
func TestRandomOrder(t *testing.T) {
	run := func(body string, threads int, random uint64) (got []uint32) {
		d := newDevice(t)
		out := d.buffer(4 * threads)
		k := d.kernel(d.load(entry(body)), "k")
		l := d.launch(k, x(1), x(threads), out, threads)
		l.Random = random
		if f := k.Run(l); f != nil {
			t.Fatal(f)
		}
		for i := range threads {
			got = append(got, out.word(i))
		}
		return got
	}
	for name, body := range broadcasts {
		for _, threads := range []int{64, 256, 1024} {
			shown := 0
			for seed := range uint64(16) {
				got := run(body, threads, seed+1)
				if slices.ContainsFunc(got, func(v uint32) bool { return v != 1 }) {
					shown++
				}
				if !slices.Equal(got, run(body, threads, seed+1)) {
					t.Errorf("%s, %d threads: seed %d gives different orders", name, threads, seed+1)
				}
			}
			if shown == 0 {
				t.Errorf("%s, %d threads: no order shows the race", name, threads)
			}
		}
	}
	const sum = `mul.wide.u32 %a2, %t, 4; mov.u64 %a3, s; add.u64 %a2, %a2, %a3; st.shared.u32 [%a2], %t; mov.u32 %r1, %ntid.x;
		again: shr.u32 %r1, %r1, 1; bar.sync 0; setp.ge.u32 %p1, %t, %r1; @%p1 bra next;
		mul.wide.u32 %a4, %r1, 4; add.u64 %a4, %a4, %a2; ld.shared.u32 %r2, [%a4]; ld.shared.u32 %r3, [%a2]; add.u32 %r3, %r3, %r2; st.shared.u32 [%a2], %r3;
		next: setp.gt.u32 %p1, %r1, 1; @%p1 bra again; bar.sync 0; ld.shared.u32 %r4, [s]; activemask.b32 %r5; shfl.sync.idx.b32 %r6, %t, 0, 31, 0xffffffff; st.global.u32 [%a0], %r4;`
	for seed := range uint64(32) {
		for i, v := range run(sum, 1024, seed) {
			if v != 1024*1023/2 {
				t.Fatalf("seed %d, thread %d: %d", seed, i, v)
			}
		}
	}
}
