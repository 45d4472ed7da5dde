package session

import (
	"testing"

	"pegasus/backend/worker/workertest"
	"pegasus/cuda"
)

func TestProfile(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.want(cuda.ErrorInvalidValue, cuda.OpProfile, 0, 0, &cuda.ProfileArgs{Action: 2, ArenaOffset: 1, Capacity: 1 << 20})
	b.want(cuda.ErrorNotSupported, cuda.OpProfile, 0, 0, &cuda.ProfileArgs{Action: 1}) // by the fake
}

func TestCheck(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	for _, checks := range []uint32{0, 4, ^uint32(0)} {
		b.want(cuda.ErrorInvalidValue, cuda.OpCheck, 0, 0, &cuda.CheckArgs{Checks: checks})
	}
	b.want(cuda.ErrorNotSupported, cuda.OpCheck, 0, 0, &cuda.CheckArgs{Checks: checkBounds | checkOrder, Seed: 1}) // by the fake
}

func TestTextRead(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	read := func(a cuda.TextReadArgs) (out cuda.TextReadResult, text string) {
		t.Helper()
		out.Decode(b.want(0, cuda.OpTextRead, 1, 0, &a))
		return out, string(b.g.Arena()[a.ArenaOffset:][:out.Length])
	}
	if out, _ := read(cuda.TextReadArgs{Capacity: 4}); out.Length != 0 || b.g.TextWaits(1) {
		t.Errorf("text before there is any: %+v", out)
	}
	ctx := b.dev.Latest()
	ctx.Tell("hello")
	if !b.g.TextWaits(1) {
		t.Error("the guest is not told of text")
	}
	if out, text := read(cuda.TextReadArgs{ArenaOffset: 8, Capacity: 4}); text != "hell" || out.Left != 1 || out.File != 2 || !b.g.TextWaits(1) {
		t.Errorf("%q, %+v", text, out)
	}
	if out, text := read(cuda.TextReadArgs{Capacity: 4}); text != "o" || out.Left != 0 || b.g.TextWaits(1) {
		t.Errorf("%q, %+v", text, out)
	}
	for _, a := range []cuda.TextReadArgs{{Flags: 2}, {Capacity: 1<<20 + 1}, {ArenaOffset: 1 << 20, Capacity: 1}, {ArenaOffset: ^uint64(0)}} {
		b.want(cuda.ErrorInvalidValue, cuda.OpTextRead, 1, 0, &a)
	}
	b.want(cuda.ErrorInvalidContext, cuda.OpTextRead, 2, 0, &cuda.TextReadArgs{})

	// With the flag, queued work ends first, and no other call is blocked.
	b.launch(1, 0, 1, word) // waits for the test's permission
	done := make(chan string)
	go func() {
		_, text := read(cuda.TextReadArgs{Capacity: 100, Flags: textAfterAll})
		done <- text
	}()
	b.want(0, cuda.OpNop, 1, 0, nil)
	ctx.Tell("last")
	b.dev.Leave <- struct{}{}
	if text := <-done; text != "last" {
		t.Errorf("%q after all work", text)
	}
	// It does not wait for work that may depend on a host function.
	b.queue(cuda.OpHostCallback, 1, 0, &cuda.HostCallbackArgs{Callback: 9})
	if out, _ := read(cuda.TextReadArgs{Capacity: 100, Flags: textAfterAll}); out.Length != 0 {
		t.Errorf("%+v", out)
	}
	// A new context under the same id has no text.
	ctx.Tell("lost")
	b.want(0, cuda.OpContextDestroy, 1, 0, nil)
	b.want(0, cuda.OpContextCreate, 1, 0, &cuda.ContextCreateArgs{})
	if b.g.TextWaits(1) {
		t.Error("a new context has the text of one before")
	}
}
