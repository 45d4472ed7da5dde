package session

import (
	"bytes"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/backend/worker/handles"
	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/internal/testkit"
)

func TestDeviceInfo(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetQuota(gate.DeviceMemory, 12345)
	data := b.want(0, cuda.OpDeviceInfo, 0, 0, &cuda.DeviceInfoArgs{ArenaOffset: 512, Capacity: 4096})
	var s cuda.DeviceSnapshot
	if !s.Decode(b.g.Arena()[512 : 512+le.Uint64(data)]) {
		t.Fatal("no snapshot")
	}
	if len(s.Devices) != 1 || s.Devices[0].Name != "fake" || s.Devices[0].TotalMem != 12345 {
		t.Errorf("snapshot %+v", s.Devices)
	}
	b.want(cuda.ErrorInvalidValue, cuda.OpDeviceInfo, 0, 0, &cuda.DeviceInfoArgs{ArenaOffset: 512, Capacity: 8})
	b.want(cuda.ErrorInvalidValue, cuda.OpDeviceInfo, 0, 0, &cuda.DeviceInfoArgs{ArenaOffset: 1 << 20, Capacity: 1})
	b.want(cuda.ErrorInvalidValue, cuda.OpDeviceInfo, 0, 0, &cuda.DeviceInfoArgs{ArenaOffset: math.MaxUint64 - 4, Capacity: 16})
}

func TestContexts(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.want(cuda.ErrorInvalidValue, cuda.OpContextCreate, 0, 0, &cuda.ContextCreateArgs{})
	b.want(cuda.ErrorInvalidValue, cuda.OpContextCreate, 256, 0, &cuda.ContextCreateArgs{})
	b.want(cuda.ErrorInvalidDevice, cuda.OpContextCreate, 1, 0, &cuda.ContextCreateArgs{Device: 1})
	b.want(cuda.ErrorInvalidContext, cuda.OpContextSynchronize, 1, 0, nil)
	b.want(cuda.ErrorInvalidContext, cuda.OpContextSynchronize, math.MaxUint32, 0, nil)
	b.context(1)
	b.want(cuda.ErrorInvalidContext, cuda.OpContextCreate, 1, 0, &cuda.ContextCreateArgs{})
	word := b.context(255)
	b.queue(cuda.OpStreamCreate, 255, 0, &cuda.StreamCreateArgs{Stream: 99})
	b.want(0, cuda.OpStreamSynchronize, 255, 99, nil)
	b.want(cuda.ErrorInvalidHandle, cuda.OpStreamSynchronize, 1, 99, nil)
	b.want(0, cuda.OpContextDestroy, 255, 0, nil)
	b.want(cuda.ErrorInvalidContext, cuda.OpContextSynchronize, 255, 0, nil)
	b.want(cuda.ErrorInvalidValue, cuda.OpMemFree, 1, 0, &cuda.MemFreeArgs{Address: word})
	if used, _ := b.page.Memory(gate.DeviceMemory); used != 8 {
		t.Errorf("%d bytes are left, want the word of context 1", used)
	}
	b.want(0, cuda.OpContextCreate, 255, 0, &cuda.ContextCreateArgs{})
}

func TestStickyErrorPoisonsItsContextOnly(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	other := b.context(2)
	b.launch(1, 0, 2, word)
	b.want(cuda.ErrorIllegalAddress, cuda.OpContextSynchronize, 1, 0, nil)
	b.want(cuda.ErrorIllegalAddress, cuda.OpContextSynchronize, 1, 0, nil)
	if p := cuda.Result(b.g.ContextPoison(1)); p != cuda.ErrorIllegalAddress {
		t.Errorf("context 1 is poisoned with %v", p)
	}
	if p := b.g.ContextPoison(2); p != 0 {
		t.Errorf("context 2 is poisoned with %v", p)
	}
	b.launch(2, 0, 0, other)
	if n := b.read(2, other); n != 1 {
		t.Errorf("word of context 2 is %d", n)
	}
	b.want(0, cuda.OpContextDestroy, 1, 0, nil)
	b.want(0, cuda.OpContextCreate, 1, 0, &cuda.ContextCreateArgs{})
	if p := b.g.ContextPoison(1); p != 0 {
		t.Errorf("a new context 1 is poisoned with %v", p)
	}
}

func TestDeferredErrors(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	sync := func(want cuda.Result) {
		t.Helper()
		b.want(want, cuda.OpContextSynchronize, 1, 0, nil)
	}
	// The first error is returned, once.
	b.queue(cuda.OpStreamDestroy, 1, 0, &cuda.StreamDestroyArgs{Stream: 77})
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 20, Flags: 5})
	sync(cuda.ErrorInvalidHandle)
	sync(cuda.Success)
	// A failed creation poisons its id.
	b.want(cuda.ErrorInvalidValue, cuda.OpStreamSynchronize, 1, 20, nil)
	b.queue(cuda.OpStreamDestroy, 1, 0, &cuda.StreamDestroyArgs{Stream: 20})
	sync(cuda.ErrorInvalidValue)
	b.want(cuda.ErrorInvalidHandle, cuda.OpStreamSynchronize, 1, 20, nil)
	// A live id is rejected for a new object, and its object remains.
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 21})
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 21})
	b.want(cuda.Success, cuda.OpStreamSynchronize, 1, 21, nil)
	sync(cuda.ErrorInvalidHandle)
	// Ids that guests may not choose.
	for _, id := range []uint64{0, 1, 2, 15} {
		b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: id})
		sync(cuda.ErrorInvalidHandle)
	}
	b.want(cuda.ErrorInvalidHandle, cuda.OpStreamQuery, 1, 2, nil)
	// Bad launches.
	b.launch(1, 0, 99, word)
	sync(cuda.ErrorInvalidHandle)
	b.queue(cuda.OpLaunch, 1, 0, &cuda.LaunchArgs{Function: cuda.LaunchFunction(1, 0)})
	sync(cuda.ErrorInvalidValue)
	b.queue(cuda.OpLaunch, 1, 0, &cuda.LaunchArgs{Function: cuda.LaunchFunction(3, 0)})
	sync(cuda.ErrorInvalidHandle)
	// A context's error does not affect another context.
	b.context(2)
	b.queue(cuda.OpEventDestroy, 2, 0, &cuda.EventDestroyArgs{Event: 5})
	sync(cuda.Success)
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 2, 0, nil)
}

// A nonsticky error is returned by calls that synchronise its stream, or all: by no other call, and no copy is lost for
// it.
func TestErrorsBelongToStreams(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	for _, id := range []uint64{20, 21} {
		b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: id})
		b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: id})
	}
	copied := func(stream uint64) cuda.Result {
		r, _ := b.call(cuda.OpCopyLinear, 1, stream, &cuda.CopyLinearArgs{Src: word, Length: 8, DstKind: cuda.EndInline, SrcKind: cuda.EndDevice})
		return r
	}
	synced := func(stream uint64) cuda.Result { r, _ := b.call(cuda.OpStreamSynchronize, 1, stream, nil); return r }
	event := func(stream uint64) cuda.Result {
		b.queue(cuda.OpEventRecord, 1, stream, &cuda.EventRecordArgs{Event: 20, Serial: 1})
		r, _ := b.call(cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: 20})
		return r
	}
	all := func(uint64) cuda.Result { r, _ := b.call(cuda.OpContextSynchronize, 1, 0, nil); return r }
	queries := func(stream uint64) cuda.Result { r, _ := b.call(cuda.OpStreamQuery, 1, stream, nil); return r }
	allocates := func(uint64) cuda.Result {
		r, _ := b.call(cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 8})
		return r
	}
	for name, c := range map[string]struct {
		call   func(stream uint64) cuda.Result
		stream uint64
		owed   bool
	}{
		"its stream": {synced, 20, true}, "a copy in its stream": {copied, 20, true}, "an event of its stream": {event, 20, true},
		"all": {all, 0, true}, "another stream": {synced, 21, false}, "the default stream": {synced, 0, false},
		"the legacy stream": {synced, cuda.StreamLegacy, false}, "a copy elsewhere": {copied, 21, false},
		"a copy in the default stream": {copied, 0, false}, "an event elsewhere": {event, 21, false},
		"a query": {queries, 21, false}, "an allocation": {allocates, 0, false},
	} {
		b.launch(1, 20, 99, word)
		want := cuda.Success
		if c.owed {
			want = cuda.ErrorInvalidHandle
		}
		if r := c.call(c.stream); r != want {
			t.Errorf("%s: %v, want %v", name, r, want)
		}
		if left := all(0); (left != cuda.Success) == c.owed {
			t.Errorf("%s: then the context returns %v", name, left)
		}
	}
	// A destroyed stream leaves its error to the context.
	b.launch(1, 20, 99, word)
	b.queue(cuda.OpStreamDestroy, 1, 0, &cuda.StreamDestroyArgs{Stream: 20})
	if r := synced(21); r != cuda.Success {
		t.Errorf("another stream after one was destroyed: %v", r)
	}
	if r := all(0); r != cuda.ErrorInvalidHandle {
		t.Errorf("the context after a stream with an error was destroyed: %v", r)
	}
	// The two names of the default stream are one, and each stream has an error of its own.
	b.launch(1, 0, 99, word)
	b.queue(cuda.OpLaunch, 1, 21, &cuda.LaunchArgs{Function: cuda.LaunchFunction(1, 0)})
	if r := synced(cuda.StreamLegacy); r != cuda.ErrorInvalidHandle {
		t.Errorf("the default stream by its other name: %v", r)
	}
	if r := synced(21); r != cuda.ErrorInvalidValue {
		t.Errorf("the other stream: %v", r)
	}
	if r := all(0); r != cuda.Success {
		t.Errorf("then the context returns %v", r)
	}
}

func TestModules(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	copy(b.g.Arena(), "fake")
	load := func(a cuda.ModuleLoadArgs) (cuda.Result, cuda.ModuleLoadResult) {
		r, data := b.call(cuda.OpModuleLoad, 1, 0, &a)
		var out cuda.ModuleLoadResult
		out.Decode(data)
		return r, out
	}
	good := cuda.ModuleLoadArgs{Module: 9, ImageLength: 4, LayoutOffset: 4096, LayoutCapacity: 4096, LogOffset: 8192, LogCapacity: 100}
	for name, c := range map[string]struct {
		change func(*cuda.ModuleLoadArgs)
		want   cuda.Result
	}{
		"live id":         {func(a *cuda.ModuleLoadArgs) { a.Module = 1 }, cuda.ErrorInvalidHandle},
		"wide id":         {func(a *cuda.ModuleLoadArgs) { a.Module = 1 << 32 }, cuda.ErrorInvalidHandle},
		"outside":         {func(a *cuda.ModuleLoadArgs) { a.ImageOffset = math.MaxUint64 }, cuda.ErrorInvalidValue},
		"too long":        {func(a *cuda.ModuleLoadArgs) { a.ImageLength = 1<<20 + 1 }, cuda.ErrorInvalidValue},
		"layout outside":  {func(a *cuda.ModuleLoadArgs) { a.LayoutOffset = 1 << 20 }, cuda.ErrorInvalidValue},
		"layout no room":  {func(a *cuda.ModuleLoadArgs) { a.LayoutCapacity = 20 }, cuda.ErrorInvalidValue},
		"log outside":     {func(a *cuda.ModuleLoadArgs) { a.LogCapacity = math.MaxUint64 }, cuda.ErrorInvalidValue},
		"not an image":    {func(a *cuda.ModuleLoadArgs) { a.ImageLength = 3 }, cuda.ErrorInvalidPTX},
		"nothing":         {func(a *cuda.ModuleLoadArgs) { a.ImageLength = 0 }, cuda.ErrorInvalidPTX},
		"short log":       {func(a *cuda.ModuleLoadArgs) { a.LogCapacity = 2 }, cuda.Success},
		"id of no object": {func(a *cuda.ModuleLoadArgs) { a.Module = 0 }, cuda.ErrorInvalidHandle},
	} {
		a := good
		c.change(&a)
		r, out := load(a)
		if r != c.want {
			t.Errorf("%s: %v, want %v", name, r, c.want)
		}
		if name == "not an image" {
			if log := string(b.g.Arena()[8192 : 8192+out.LogLength]); log != "not fake" {
				t.Errorf("log of a failure: %q", log)
			}
		}
		if r == cuda.Success {
			b.queue(cuda.OpModuleUnload, 1, 0, &cuda.ModuleUnloadArgs{Module: 9})
		}
	}
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
}

// An image can be inspected without a context, and the inspection takes no memory.
func TestInspectedModules(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	copy(b.g.Arena(), "fake")
	good := cuda.ModuleInspectArgs{ImageLength: 4, LayoutOffset: 4096, LayoutCapacity: 4096, LogOffset: 8192, LogCapacity: 100}
	for name, c := range map[string]struct {
		change func(*cuda.ModuleInspectArgs)
		want   cuda.Result
	}{
		"good":           {func(*cuda.ModuleInspectArgs) {}, cuda.Success},
		"other device":   {func(a *cuda.ModuleInspectArgs) { a.Device = 1 }, cuda.ErrorInvalidDevice},
		"outside":        {func(a *cuda.ModuleInspectArgs) { a.ImageOffset = math.MaxUint64 }, cuda.ErrorInvalidValue},
		"too long":       {func(a *cuda.ModuleInspectArgs) { a.ImageLength = 1<<20 + 1 }, cuda.ErrorInvalidValue},
		"layout outside": {func(a *cuda.ModuleInspectArgs) { a.LayoutOffset = 1 << 20 }, cuda.ErrorInvalidValue},
		"layout no room": {func(a *cuda.ModuleInspectArgs) { a.LayoutCapacity = 20 }, cuda.ErrorInvalidValue},
		"log outside":    {func(a *cuda.ModuleInspectArgs) { a.LogCapacity = math.MaxUint64 }, cuda.ErrorInvalidValue},
		"not an image":   {func(a *cuda.ModuleInspectArgs) { a.ImageLength = 3 }, cuda.ErrorInvalidPTX},
	} {
		a := good
		c.change(&a)
		r, data := b.call(cuda.OpModuleInspect, 0, 0, &a)
		var out cuda.ModuleInspectResult
		if !out.Decode(data) || r != c.want {
			t.Errorf("%s: %v, want %v", name, r, c.want)
		}
		if log := string(b.g.Arena()[8192 : 8192+out.LogLength]); r == cuda.ErrorInvalidPTX && log != "not fake" {
			t.Errorf("log of a failure: %q", log)
		}
		var l cuda.ModuleLayout
		if r == cuda.Success && (!l.Decode(b.g.Arena()[4096:4096+out.LayoutLength]) || len(l.Functions) != 4) {
			t.Errorf("%s: a layout of %d functions", name, len(l.Functions))
		}
	}
}

func TestMemoryQuota(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	b.page.SetQuota(gate.DeviceMemory, 10000)
	info := func() (m cuda.MemInfoResult) {
		m.Decode(b.want(0, cuda.OpMemInfo, 1, 0, nil))
		return m
	}
	if m := info(); m.Total != 10000 || m.Free != 10000-8 {
		t.Errorf("%+v", m)
	}
	data := b.want(0, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 9000})
	b.want(cuda.ErrorOutOfMemory, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 1000})
	b.want(cuda.ErrorOutOfMemory, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: math.MaxUint64})
	b.want(cuda.ErrorInvalidValue, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{})
	b.want(0, cuda.OpMemFree, 1, 0, &cuda.MemFreeArgs{Address: le.Uint64(data)})
	b.want(cuda.ErrorInvalidValue, cuda.OpMemFree, 1, 0, &cuda.MemFreeArgs{Address: le.Uint64(data)})
	b.want(0, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 9900})
	b.want(0, cuda.OpContextDestroy, 1, 0, nil)
	if used, _ := b.page.Memory(gate.DeviceMemory); used != 0 {
		t.Errorf("%d bytes are used by nobody", used)
	}
}

func TestCopies(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	addr := le.Uint64(b.want(0, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 4096}))
	arena := b.g.Arena()
	for i := range 1024 {
		arena[i] = byte(i * 7)
	}
	released := b.g.ReleaseWord(3)
	b.queue(cuda.OpCopyLinear, 1, 0, &cuda.CopyLinearArgs{Dst: addr, Src: 0, Length: 1024, DstKind: cuda.EndDevice, SrcKind: cuda.EndArena, Release: 3})
	b.want(0, cuda.OpCopyLinear, 1, 0, &cuda.CopyLinearArgs{Dst: 2048, Src: addr, Length: 1024, DstKind: cuda.EndArena, SrcKind: cuda.EndDevice})
	if !bytes.Equal(arena[:1024], arena[2048:3072]) {
		t.Error("there and back: other bytes")
	}
	if released.Load() != 1 {
		t.Error("the staging block was not released")
	}
	inline := []byte("a few bytes within the packet")
	b.queue(cuda.OpCopyLinear, 1, 0, &cuda.CopyLinearArgs{Dst: addr + 100, Length: uint64(len(inline)), DstKind: cuda.EndDevice, SrcKind: cuda.EndInline, Data: inline})
	got := b.want(0, cuda.OpCopyLinear, 1, 0, &cuda.CopyLinearArgs{Src: addr + 100, Length: uint64(len(inline)), DstKind: cuda.EndInline, SrcKind: cuda.EndDevice})
	if !bytes.Equal(got, inline) {
		t.Errorf("inline: %q", got)
	}
	// A box of 3×2×2 out of a volume of 8×4 rows in the arena, at (1,1,1).
	for i := range 96 {
		arena[i] = byte(i)
	}
	b.want(0, cuda.OpCopy, 1, 0, &cuda.CopyArgs{
		DstKind: cuda.EndDevice, SrcKind: cuda.EndArena, Dst: addr, Width: 3, Height: 2, Depth: 2,
		DstPitch: 3, DstHeight: 2, SrcPitch: 8, SrcHeight: 4, SrcX: 1, SrcY: 1, SrcZ: 1,
	})
	got = b.want(0, cuda.OpCopyLinear, 1, 0, &cuda.CopyLinearArgs{Src: addr, Length: 12, DstKind: cuda.EndInline, SrcKind: cuda.EndDevice})
	if want := []byte{41, 42, 43, 49, 50, 51, 73, 74, 75, 81, 82, 83}; !bytes.Equal(got, want) {
		t.Errorf("box %v, want %v", got, want)
	}
	if st, _ := b.page.Statistics(0); st.Ended[gate.Copy] != 6 || st.Ended[gate.Compute] != 0 {
		t.Errorf("accounted are %v, want 6 copies", st.Ended)
	}
	// Fills and copies inside the device hold the engine for kernels, and wait for that.
	b.want(0, cuda.OpCopyLinear, 1, 0, &cuda.CopyLinearArgs{Dst: addr + 100, Src: addr, Length: 10, DstKind: cuda.EndDevice, SrcKind: cuda.EndDevice})
	b.want(0, cuda.OpFill, 1, 0, &cuda.FillArgs{Dst: addr, ElementSize: 1, Width: 10, Height: 1})
	if st, _ := b.page.Statistics(0); st.Ended[gate.Copy] != 6 || st.Ended[gate.Compute] != 2 {
		t.Errorf("accounted are %v, want 6 copies and 2 that passed the gate for kernels", st.Ended)
	}
}

func TestBadCopiesFail(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	addr := le.Uint64(b.want(0, cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 4096}))
	const huge = math.MaxUint64
	released := b.g.ReleaseWord(1)
	for name, a := range map[string]cuda.CopyArgs{
		"past the arena":      {DstKind: 1, SrcKind: 2, Dst: addr, Src: 1<<20 - 1, Width: 2, Height: 1, Depth: 1},
		"length wraps":        {DstKind: 1, SrcKind: 2, Dst: addr, Src: 8, Width: huge, Height: 1, Depth: 1},
		"rows wrap":           {DstKind: 1, SrcKind: 2, Dst: addr, Width: 8, Height: huge, Depth: 1, SrcPitch: 8, DstPitch: 8},
		"volume wraps":        {DstKind: 1, SrcKind: 2, Dst: addr, Width: 1 << 30, Height: 1 << 30, Depth: 1 << 30, SrcPitch: 1 << 30, DstPitch: 1 << 30, SrcHeight: 1 << 30, DstHeight: 1 << 30},
		"pitch below width":   {DstKind: 1, SrcKind: 2, Dst: addr, Width: 8, Height: 2, Depth: 1, SrcPitch: 4, DstPitch: 8},
		"slice below height":  {DstKind: 1, SrcKind: 2, Dst: addr, Width: 8, Height: 2, Depth: 2, SrcPitch: 8, DstPitch: 8, SrcHeight: 1, DstHeight: 2},
		"x wraps":             {DstKind: 1, SrcKind: 2, Dst: addr, Width: 8, Height: 1, Depth: 1, SrcX: huge - 3},
		"z wraps":             {DstKind: 1, SrcKind: 2, Dst: addr, Width: 8, Height: 1, Depth: 1, SrcZ: huge, SrcPitch: 8, SrcHeight: 1, DstPitch: 8, DstHeight: 1},
		"address wraps":       {DstKind: 1, SrcKind: 2, Dst: huge - 2, Width: 8, Height: 1, Depth: 1},
		"no such array":       {DstKind: 3, SrcKind: 2, Dst: 5, Width: 8, Height: 1, Depth: 1},
		"no such kind":        {DstKind: 1, SrcKind: 9, Dst: addr, Width: 8, Height: 1, Depth: 1},
		"kind zero":           {DstKind: 0, SrcKind: 2, Dst: addr, Width: 8, Height: 1, Depth: 1},
		"inline too short":    {DstKind: 1, SrcKind: 4, Dst: addr, Width: 8, Height: 1, Depth: 1, Data: []byte("seven b")},
		"inline elsewhere":    {DstKind: 1, SrcKind: 4, Dst: addr, Src: 1, Width: 1, Height: 1, Depth: 1, Data: []byte("bytes")},
		"inline not asked":    {DstKind: 1, SrcKind: 2, Dst: addr, Width: 1, Height: 1, Depth: 1, Data: []byte("bytes")},
		"inline to inline":    {DstKind: 4, SrcKind: 4, Width: 1, Height: 1, Depth: 1, Data: []byte("b")},
		"reply too small":     {DstKind: 4, SrcKind: 1, Src: addr, Width: 225, Height: 1, Depth: 1},
		"reply pitch":         {DstKind: 4, SrcKind: 1, Src: addr, Width: 2, Height: 2, Depth: 1, DstPitch: 223, SrcPitch: 2},
		"device out of range": {DstKind: 1, SrcKind: 2, Dst: addr + 4090, Width: 8, Height: 1, Depth: 1},
	} {
		released.Store(0)
		a.Release = 1
		if r, _ := b.call(cuda.OpCopy, 1, 0, &a); r != cuda.ErrorInvalidValue && r != cuda.ErrorInvalidHandle {
			t.Errorf("%s: %v", name, r)
		}
		if released.Load() != 1 {
			t.Errorf("%s: its source was not released", name)
		}
	}
	b.queue(cuda.OpCopy, 1, 0, &cuda.CopyArgs{DstKind: 4, SrcKind: 1, Src: addr, Width: 8, Height: 1, Depth: 1})
	b.want(cuda.ErrorInvalidValue, cuda.OpContextSynchronize, 1, 0, nil) // no call waits for the bytes
	b.want(0, cuda.OpCopy, 1, 0, &cuda.CopyArgs{DstKind: 1, SrcKind: 2, Dst: 1, Width: 0, Height: 1, Depth: 1})
	b.want(cuda.ErrorInvalidValue, cuda.OpFill, 1, 0, &cuda.FillArgs{Dst: addr, Width: 1, Height: 1, ElementSize: 3})
	b.want(cuda.ErrorInvalidValue, cuda.OpFill, 1, 0, &cuda.FillArgs{Dst: addr, Width: huge, Height: 1, ElementSize: 4})
	b.want(cuda.ErrorInvalidValue, cuda.OpFill, 1, 0, &cuda.FillArgs{Dst: addr, Width: 8, Height: 3, Pitch: huge / 2, ElementSize: 4})
}

func TestEvents(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 16})
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 1})
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 2})
	b.want(0, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: 1})
	b.want(cuda.ErrorInvalidHandle, cuda.OpEventElapsed, 1, 0, &cuda.EventElapsedArgs{Start: 1, End: 2})
	b.launch(1, 16, 1, word)
	b.queue(cuda.OpEventRecord, 1, 16, &cuda.EventRecordArgs{Event: 1, Serial: 5})
	b.want(cuda.ErrorNotReady, cuda.OpEventElapsed, 1, 0, &cuda.EventElapsedArgs{Start: 1, End: 1})
	// Work of another stream waits for it, also of another context.
	b.queue(cuda.OpStreamWaitEvent, 1, 0, &cuda.StreamWaitEventArgs{Event: 1})
	b.launch(1, 0, 0, word)
	other := b.context(2)
	b.queue(cuda.OpStreamWaitEvent, 2, 0, &cuda.StreamWaitEventArgs{Event: 1})
	b.launch(2, 0, 0, other)
	if b.g.EventSerial(1) != 0 {
		t.Error("event 1 is complete before the kernel is")
	}
	b.dev.Leave <- struct{}{}
	b.want(0, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: 1})
	if n := b.g.EventSerial(1); n != 5 {
		t.Errorf("serial %d, want 5", n)
	}
	if n := b.read(1, word); n != 2 {
		t.Errorf("word %d, want 2", n)
	}
	if n := b.read(2, other); n != 1 {
		t.Errorf("word of context 2: %d, want 1", n)
	}
	b.queue(cuda.OpEventRecord, 1, 0, &cuda.EventRecordArgs{Event: 2, Serial: 6})
	b.want(0, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: 2})
	b.want(0, cuda.OpEventElapsed, 1, 0, &cuda.EventElapsedArgs{Start: 1, End: 2})
	// An event of another context is not recorded here.
	b.queue(cuda.OpEventRecord, 2, 0, &cuda.EventRecordArgs{Event: 2, Serial: 7})
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 2, 0, nil)
}

// A record of a missing event fails, but a thread that waits for it must not do so for ever.
func TestRecordOfNothing(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	b.queue(cuda.OpEventRecord, 1, 0, &cuda.EventRecordArgs{Event: 1, Serial: 3})
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 1, 0, nil)
	if n := b.g.EventSerial(1); n != 3 {
		t.Errorf("serial %d, want 3", n)
	}
}

// A record of a destroyed event must not become visible in the word to the event that has it now.
func TestEventWordsAreNotMixedUp(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 16})
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 1})
	b.launch(1, 16, 1, word)
	b.queue(cuda.OpEventRecord, 1, 16, &cuda.EventRecordArgs{Event: 1, Serial: 1000})
	b.queue(cuda.OpEventDestroy, 1, 0, &cuda.EventDestroyArgs{Event: 1})
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 1 + 64}) // the same word of 64
	b.queue(cuda.OpEventRecord, 1, 0, &cuda.EventRecordArgs{Event: 1 + 64, Serial: 1})
	b.want(0, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: 1 + 64})
	b.dev.Leave <- struct{}{}
	b.want(0, cuda.OpStreamSynchronize, 1, 16, nil)
	if n := b.g.EventSerial(1); n != 1 {
		t.Errorf("serial %d, want 1", n)
	}
}

func TestCallbacks(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	var ran []uint64
	var thread sync.WaitGroup
	thread.Go(func() {
		for done := uint64(0); ; {
			r, data := b.call(cuda.OpCallbackWait, 0, 0, &cuda.CallbackWaitArgs{Done: done})
			var c cuda.CallbackWaitResult
			if r != cuda.Success || !c.Decode(data) || c.Status != 0 {
				t.Errorf("callback wait: %v, %d bytes", r, len(data))
				return
			}
			ran = append(ran, c.Callback, b.read(1, word))
			if done = c.Callback; done == 3 {
				b.queue(cuda.OpNop, 0, 0, nil)
				b.g.Send(callbuf.Header{Op: uint16(cuda.OpCallbackWait), Flags: callbuf.FlagReply, ReplySlot: 63}, workertest.Payload(&cuda.CallbackWaitArgs{Done: done}), workertest.Patience())
				return
			}
		}
	})
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 16})
	for i := uint64(1); i <= 3; i++ {
		b.launch(1, 16, 0, word)
		b.queue(cuda.OpHostCallback, 1, 16, &cuda.HostCallbackArgs{Callback: i})
	}
	b.launch(1, 16, 0, word)
	b.want(0, cuda.OpStreamSynchronize, 1, 16, nil)
	thread.Wait()
	if want := []uint64{1, 1, 2, 2, 3, 3}; !equal(ran, want) {
		t.Errorf("callbacks and what they saw: %v, want %v", ran, want)
	}
	if n := b.read(1, word); n != 4 {
		t.Errorf("word %d, want 4", n)
	}
	b.queue(cuda.OpHostCallback, 1, 0, &cuda.HostCallbackArgs{Callback: 0})
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 1, 0, nil)
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// While a launch waits at the gate, the report of a host callback behind it must be processed: the work in flight
// depends on it.
func TestCallbackReportedBehindClosedGate(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.page.SetInFlightLimit(1)
	b.queue(cuda.OpHostCallback, 1, 0, &cuda.HostCallbackArgs{Callback: 1})
	b.want(0, cuda.OpCallbackWait, 0, 0, &cuda.CallbackWaitArgs{})
	b.launch(1, 0, 0, word) // in flight, behind the callback
	b.launch(1, 0, 0, word) // beyond the limit
	b.page.Revoke(gate.AllClasses)
	b.launch(1, 0, 0, word) // waits at the gate
	r := make(chan cuda.Result)
	go func() {
		r <- cuda.Result(first(b.call(cuda.OpCallbackWait, 0, 0, &cuda.CallbackWaitArgs{Done: 1})))
	}()
	b.until(func() bool { w := b.page.Look(); return w.InFlight == 0 && w.Pending == 1 })
	b.page.Grant(gate.Terms{Classes: gate.AllClasses, Until: gate.Forever})
	if n := b.read(1, word); n != 3 {
		t.Errorf("word %d, want 3", n)
	}
	b.queue(cuda.OpHostCallback, 1, 0, &cuda.HostCallbackArgs{Callback: 2})
	if got := <-r; got != cuda.Success {
		t.Errorf("callback wait: %v", got)
	}
}

// While a kernel only waits, the in-flight limit does not apply to launches behind it, but the gate does.
func TestLaunchesBesideAKernelThatPolls(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.page.SetInFlightLimit(1)
	const launches = 20
	for polls, admits := range map[bool]func(time.Duration) bool{
		false: func(d time.Duration) bool { return d > launches*40*time.Millisecond }, // after limitPatience each
		true:  func(d time.Duration) bool { return d < launches*40*time.Millisecond },
	} {
		b.dev.Polls.Store(polls)
		b.launch(1, 0, 1, word) // until it may leave
		began := time.Now()
		for range launches {
			b.launch(1, 0, 0, word)
		}
		b.until(func() bool { w := b.page.Look(); return w.InFlight == 1+launches && w.Pending == 0 })
		if took := time.Since(began); !admits(took) {
			t.Errorf("polls %v: all launches are admitted after %v", polls, took)
		}
		b.page.Revoke(gate.AllClasses)
		b.launch(1, 0, 0, word)
		b.until(func() bool { return b.page.Look().Pending == 1 })
		if in := b.page.Look().InFlight; in != 1+launches {
			t.Errorf("polls %v: %d are in flight behind a closed gate, want %d", polls, in, 1+launches)
		}
		b.page.Grant(gate.Terms{Classes: gate.AllClasses, Until: gate.Forever})
		b.dev.Leave <- struct{}{}
		b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	}
}

// A kernel is compiled before its first launch passes the gate, for whose turn other domains wait, and only then.
func TestPreparedBeforeTheGate(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	var prepared atomic.Int32
	count := func() {
		prepared.Add(1)
		if w := b.page.Look(); w.InFlight != 0 || w.Pending != 0 {
			t.Errorf("a launch is at the gate or beyond while its kernel is compiled: %+v", w)
		}
	}
	b.dev.Prepared.Store(&count)
	for range 3 {
		b.launch(1, 0, 0, word)
		b.read(1, word)
	}
	if n := prepared.Load(); n != 1 {
		t.Errorf("the kernel was prepared %d times", n)
	}
}

// A module is loaded, and a kernel compiled, when few enough other workers of the domain prepare work.
func TestPreparesInItsTurn(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetPreparers(1)
	other := b.sibling()
	var all sync.WaitGroup
	defer all.Wait()
	var word uint64
	for _, c := range []struct {
		what string
		call func()
	}{
		{"load a module", func() { word = b.context(1) }},
		{"launch a kernel", func() {
			b.launch(1, 0, 0, word)
			b.read(1, word)
		}},
		{"launch a graph", func() {
			b.createGraph(0, 7, kernelNode(1, 0, word))
			b.launchGraph(7)
			b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
		}},
	} {
		began, end := make(chan struct{}), make(chan struct{})
		all.Go(func() {
			other.Prepare(func() {
				close(began)
				<-end
			})
		})
		<-began
		done := make(chan struct{})
		go func() {
			c.call()
			close(done)
		}()
		select {
		case <-done:
			t.Errorf("%s: not in its turn", c.what)
		case <-time.After(20 * time.Millisecond):
		}
		close(end)
		<-done
	}
}

// Calls are handled when few enough other workers of the domain handle theirs; a worker without calls is none of them.
func TestHandlesInItsTurn(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetHandlers(1)
	b.context(1)
	other := b.sibling()
	for range 3 {
		b.until(other.MayHandle) // the worker gives its slot up when it has no calls
		began := time.Now()
		done := make(chan struct{})
		go func() {
			b.want(0, cuda.OpNop, 0, 0, nil)
			close(done)
		}()
		ended := func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		b.until(func() bool { return other.Others() || ended() })
		if ended() && time.Since(began) < 100*time.Millisecond { // after that the worker takes the slot over
			t.Error("a call was handled beside another worker's")
		}
		other.Rest()
		<-done
	}
}

// The first launch of a compiled kernel waits for no worker that compiles.
func TestNothingToPrepare(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetPreparers(1)
	word := b.context(1)
	b.dev.Ready.Store(true)
	b.createGraph(0, 7, kernelNode(1, 0, word))
	began, end := make(chan struct{}), make(chan struct{})
	other := b.sibling()
	var preparing sync.WaitGroup
	preparing.Go(func() {
		other.Prepare(func() {
			close(began)
			<-end
		})
	})
	defer preparing.Wait()
	defer close(end)
	<-began
	called := time.Now()
	b.launch(1, 0, 0, word)
	b.read(1, word)
	b.launchGraph(7)
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	if d := time.Since(called); d > 5*time.Second {
		t.Errorf("the launches took %v", d)
	}
}

// sibling is another worker of the domain.
func (b *bench) sibling() *gate.Member {
	b.t.Helper()
	slot, err := b.page.TakeSlot()
	if err != nil {
		b.t.Fatal(err)
	}
	return gate.Join(b.page, b.bell, slot)
}

func first(r cuda.Result, _ []byte) cuda.Result { return r }

// until blocks until ok returns true, which depends on other goroutines.
func (b *bench) until(ok func() bool) {
	b.t.Helper()
	testkit.Eventually(b.t, "the awaited state", ok)
}

// Order: a call behind a gated one waits with it.
func TestClosedGateKeepsOrder(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.page.Revoke(gate.AllClasses)
	b.page.Look()
	b.launch(1, 0, 0, word)
	answered := make(chan struct{})
	go func() {
		b.want(0, cuda.OpNop, 0, 0, nil)
		close(answered)
	}()
	b.until(func() bool { w := b.page.Look(); return w.Arrived })
	select {
	case <-answered:
		t.Fatal("a call overtook one that the gate holds back")
	case <-time.After(20 * time.Millisecond):
	}
	b.page.Grant(gate.Terms{Classes: gate.CopyOnly, Until: gate.Forever})
	b.page.Grant(gate.Terms{Classes: gate.ComputeOnly, Until: gate.Forever})
	<-answered
}

func TestObjectsAreCapped(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	for i := range uint64(handles.Max + 2) {
		b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: i + 1})
	}
	b.want(cuda.ErrorOutOfMemory, cuda.OpContextSynchronize, 1, 0, nil)
	b.want(0, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: handles.Max})
	b.want(cuda.ErrorInvalidHandle, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: handles.Max + 1})
	b.queue(cuda.OpEventDestroy, 1, 0, &cuda.EventDestroyArgs{Event: 7})
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: handles.Max + 1})
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
}

func TestBadPackets(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.context(1)
	b.want(cuda.ErrorNotSupported, cuda.Op(999), 1, 0, nil)
	b.want(cuda.ErrorInvalidValue, cuda.OpMemAlloc, 1, 0, &cuda.ContextSetLimitArgs{}) // arguments of another length
	b.queue(cuda.OpMemAlloc, 1, 0, &cuda.MemAllocArgs{Size: 8})                        // must have a reply
	b.want(cuda.ErrorInvalidValue, cuda.OpContextSynchronize, 1, 0, nil)
	b.want(cuda.ErrorInvalidValue, cuda.OpStreamDestroy, 1, 0, &cuda.StreamDestroyArgs{}) // must have none
	b.queue(cuda.Op(0), 1, 0, nil)
	b.want(cuda.ErrorNotSupported, cuda.OpContextSynchronize, 1, 0, nil)
	b.queue(cuda.Op(77), 9, 0, nil) // no context to report to
	b.want(0, cuda.OpNop, 1, 0, nil)
}

// A guest that queues without end is blocked, and continues when there is room.
func TestQueueIsBounded(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.launch(1, 0, 1, word) // waits for the test's permission
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 1})
	var guest sync.WaitGroup
	guest.Go(func() {
		for i := range uint64(2 * maxOutstanding) {
			b.queue(cuda.OpEventRecord, 1, 0, &cuda.EventRecordArgs{Event: 1, Serial: i + 1})
		}
	})
	b.until(func() bool { return b.s.work.load.full.Load() })
	if n := b.s.work.load.outstanding.Load(); n > maxOutstanding {
		t.Errorf("%d pieces of work are with the device", n)
	}
	b.dev.Leave <- struct{}{}
	guest.Wait()
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	if n := b.g.EventSerial(1); n != 2*maxOutstanding {
		t.Errorf("serial %d", n)
	}
}
