package tests

import (
	"encoding/binary"
	"os"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// guest is the worker's view of one process: every request is executed at once, in the order of the ring, in memory of
// the test's own.
type guest struct {
	refusals

	host   *host
	ch     *callbuf.Host
	arena  uint64 // address in the guest, 0 if not shared
	next   uint64 // next device address
	mem    map[uint64][]byte
	arrays map[uint64]*array
	events map[uint64]bool

	streams   int // created and not destroyed
	callbacks []cuda.CallbackWaitResult
	waiting   []cuda.Call
}

type array struct {
	bytes                []byte
	pitch, height, depth uint64
}

// layout is the contents of every module. All parameters of "echo" after the first are written, as one block, to the
// address in the first; "fault" faults.
func layout() cuda.ModuleLayout {
	plain := cuda.FunctionLayout{MaxThreads: 1024, MaxDynamicShared: 48 << 10, Registers: 32, PTXVersion: 64, BinaryVersion: 75}
	echo, fault, none, small := plain, plain, plain, plain
	echo.Name, echo.ParamBytes = "echo", 40
	echo.Params = []cuda.ParamLayout{{Offset: 0, Size: 8}, {Offset: 8, Size: 1}, {Offset: 12, Size: 4}, {Offset: 16, Size: 2}, {Offset: 20, Size: 12}, {Offset: 32, Size: 8}}
	fault.Name, none.Name = "fault", "none"
	small.Name, small.MaxThreads, small.StaticShared, small.MaxDynamicShared = "small", 128, 1024, 47<<10
	return cuda.ModuleLayout{
		Functions: []cuda.FunctionLayout{echo, fault, none, small},
		Globals:   []cuda.GlobalLayout{{Name: "four", Address: globals, Size: 4}, {Name: "eight", Address: globals + 8, Size: 8}},
	}
}

const globals = 0x1234_0000_0000

func device() cuda.DeviceSnapshot {
	d := cuda.Device{Name: "Test device", TotalMem: 1 << 30, PCIBusID: "0000:01:00.0"}
	for i := range d.UUID {
		d.UUID[i] = byte(i + 1)
	}
	for a, v := range map[int]int32{
		1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 1<<31 - 1, 6: 65535, 7: 65535, 8: 48 << 10, 10: 32, 11: 1<<31 - 1, 12: 65536,
		14: 512, 16: 4, 39: 1024, 75: 7, 76: 5, 81: 64 << 10, 82: 65536, 97: 64 << 10, 106: 16, 120: 1,
	} {
		d.Attributes[a] = v
	}
	return cuda.DeviceSnapshot{DriverVersion: 12040, Devices: []cuda.Device{d}}
}

func (g *guest) put(offset, capacity uint64, b []byte) (uint64, cuda.Result) {
	room, ok := g.ch.Arena(offset, capacity)
	if !ok || len(b) > len(room) {
		return 0, cuda.ErrorInvalidValue
	}
	return uint64(copy(room, b)), cuda.Success
}

func (g *guest) Nop(cuda.Call) cuda.Result { return 0 }

func (g *guest) DeviceInfo(_ cuda.Call, a cuda.DeviceInfoArgs) (out cuda.DeviceInfoResult, r cuda.Result) {
	s := device()
	out.Length, r = g.put(a.ArenaOffset, a.Capacity, s.Append(nil))
	return out, r
}

func (g *guest) ContextCreate(c cuda.Call, _ cuda.ContextCreateArgs) cuda.Result {
	g.ch.PoisonContext(c.Context, 0)
	return 0
}
func (g *guest) ContextDestroy(cuda.Call) cuda.Result     { return 0 }
func (g *guest) ContextSynchronize(cuda.Call) cuda.Result { return 0 }

func (g *guest) ContextSetLimit(_ cuda.Call, a cuda.ContextSetLimitArgs) (cuda.ContextSetLimitResult, cuda.Result) {
	return cuda.ContextSetLimitResult{Value: a.Value}, 0
}

func (g *guest) TextRead(cuda.Call, cuda.TextReadArgs) (out cuda.TextReadResult, r cuda.Result) {
	return out, 0
}

func (g *guest) Profile(cuda.Call, cuda.ProfileArgs) (out cuda.ProfileResult, r cuda.Result) {
	return out, 0
}

func (g *guest) StreamMark(_ cuda.Call, a cuda.StreamMarkArgs) cuda.Result {
	g.ch.CompleteEvent(a.Event, a.Serial)
	return 0
}

func (g *guest) ModuleLoad(_ cuda.Call, a cuda.ModuleLoadArgs) (cuda.ModuleLoadResult, cuda.Result) {
	g.mem[globals] = make([]byte, 16)
	return g.image(layout(), a.ImageOffset, a.ImageLength, a.LayoutOffset, a.LayoutCapacity, a.LogOffset, a.LogCapacity)
}

// GraphCreate accepts any well-formed graph.
func (g *guest) GraphCreate(_ cuda.Call, a cuda.GraphCreateArgs) cuda.Result {
	b, ok := g.ch.Arena(a.ArenaOffset, a.Length)
	if ok {
		_, ok = cuda.DecodeGraph(b)
	}
	if !ok {
		return cuda.ErrorInvalidValue
	}
	return 0
}

func (g *guest) GraphDestroy(cuda.Call, cuda.GraphDestroyArgs) cuda.Result { return 0 }

// GraphLaunch runs the whole graph at once.
func (g *guest) GraphLaunch(_ cuda.Call, a cuda.GraphLaunchArgs) cuda.Result {
	for b := a.Records; len(b) >= 16; b = b[16:] {
		g.ch.CompleteEvent(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
	}
	return 0
}

func (g *guest) ModuleInspect(_ cuda.Call, a cuda.ModuleInspectArgs) (cuda.ModuleInspectResult, cuda.Result) {
	m := layout()
	for i := range m.Globals {
		m.Globals[i].Address = 0
	}
	out, r := g.image(m, a.ImageOffset, a.ImageLength, a.LayoutOffset, a.LayoutCapacity, a.LogOffset, a.LogCapacity)
	return cuda.ModuleInspectResult(out), r
}

// image inspects an image, of which only one exists, and writes its layout or a log.
func (g *guest) image(m cuda.ModuleLayout, image, length, layout, layoutRoom, log, logRoom uint64) (out cuda.ModuleLoadResult, r cuda.Result) {
	text, ok := g.ch.Arena(image, length)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	if string(text) != ".version 7.0\n\x00" {
		out.LogLength, _ = g.put(log, logRoom, []byte("line 1: not the test's text"))
		return out, cuda.ErrorInvalidPTX
	}
	out.LayoutLength, r = g.put(layout, layoutRoom, m.Append(nil))
	return out, r
}
func (g *guest) ModuleUnload(cuda.Call, cuda.ModuleUnloadArgs) cuda.Result { return 0 }

func (g *guest) MemAlloc(_ cuda.Call, a cuda.MemAllocArgs) (out cuda.MemAllocResult, r cuda.Result) {
	if a.Size > 1<<30 {
		return out, cuda.ErrorOutOfMemory
	}
	out.Address = g.next
	g.next += (a.Size + 511) &^ 511
	g.mem[out.Address] = make([]byte, a.Size)
	return out, 0
}

func (g *guest) MemFree(_ cuda.Call, a cuda.MemFreeArgs) cuda.Result {
	delete(g.mem, a.Address)
	return 0
}

func (g *guest) MemInfo(cuda.Call) (cuda.MemInfoResult, cuda.Result) {
	return cuda.MemInfoResult{Free: 1 << 29, Total: 1 << 30}, 0
}

// from returns the memory at a device or arena address, to the end of the allocation.
func (g *guest) from(addr uint64) []byte {
	if g.arena != 0 && addr-g.arena < g.ch.Layout().ArenaBytes {
		b, _ := g.ch.Arena(addr-g.arena, g.ch.Layout().ArenaBytes-(addr-g.arena))
		return b
	}
	for base, m := range g.mem {
		if addr-base < uint64(len(m)) {
			return m[addr-base:]
		}
	}
	return nil
}

// side is one endpoint of a copy: bytes, and the begin of a row of a slice in them.
type side struct {
	bytes         []byte
	pitch, height uint64
	x, y, z       uint64
}

func (g *guest) side(kind uint32, at, pitch, height, x, y, z uint64, inline []byte) (s side) {
	switch kind {
	case cuda.EndDevice:
		return side{g.from(at), pitch, height, 0, 0, 0}
	case cuda.EndArena:
		b, _ := g.ch.Arena(at, g.ch.Layout().ArenaBytes-at)
		return side{b, pitch, height, 0, 0, 0}
	case cuda.EndArray:
		if a := g.arrays[at]; a != nil {
			return side{a.bytes, a.pitch, a.height, x, y, z}
		}
	case cuda.EndInline:
		return side{inline, pitch, height, 0, 0, 0}
	}
	return s
}

func (s side) row(y, z, n uint64) []byte {
	at := ((s.z+z)*s.height+s.y+y)*s.pitch + s.x
	if at > uint64(len(s.bytes)) || n > uint64(len(s.bytes))-at {
		return nil
	}
	return s.bytes[at : at+n]
}

func (g *guest) Copy(c cuda.Call, a cuda.CopyArgs) (out cuda.CopyResult, r cuda.Result) {
	inline := a.Data
	if a.DstKind == cuda.EndInline {
		out.Data = make([]byte, a.Width*a.Height)
		inline = out.Data
	}
	dst := g.side(a.DstKind, a.Dst, a.DstPitch, a.DstHeight, a.DstX, a.DstY, a.DstZ, inline)
	src := g.side(a.SrcKind, a.Src, a.SrcPitch, a.SrcHeight, a.SrcX, a.SrcY, a.SrcZ, inline)
	for z := range a.Depth {
		for y := range a.Height {
			to, from := dst.row(y, z, a.Width), src.row(y, z, a.Width)
			if to == nil || from == nil {
				return out, g.deferred(c, cuda.ErrorInvalidValue)
			}
			copy(to, from)
		}
	}
	g.ch.Release(a.Release)
	return out, 0
}

func (g *guest) deferred(c cuda.Call, r cuda.Result) cuda.Result {
	if !c.Reply {
		g.ch.PoisonContext(c.Context, int32(r)) // so that no test misses it
	}
	return r
}

func (g *guest) CopyLinear(c cuda.Call, a cuda.CopyLinearArgs) (cuda.CopyLinearResult, cuda.Result) {
	out, r := g.Copy(c, cuda.CopyArgs{
		DstKind: uint32(a.DstKind), SrcKind: uint32(a.SrcKind), Dst: a.Dst, Src: a.Src, Width: a.Length, Height: 1, Depth: 1,
		DstPitch: a.Length, DstHeight: 1, SrcPitch: a.Length, SrcHeight: 1, Release: a.Release, Data: a.Data,
	})
	return cuda.CopyLinearResult(out), r
}

func (g *guest) Fill(c cuda.Call, a cuda.FillArgs) cuda.Result {
	var value [4]byte
	binary.LittleEndian.PutUint32(value[:], a.Value)
	mem := g.from(a.Dst)
	size := uint64(a.ElementSize)
	for y := range a.Height {
		for x := range a.Width {
			at := y*a.Pitch + x*size
			if at+size > uint64(len(mem)) {
				return g.deferred(c, cuda.ErrorInvalidValue)
			}
			copy(mem[at:], value[:size])
		}
	}
	return 0
}

func (g *guest) Launch(c cuda.Call, a cuda.LaunchArgs) cuda.Result {
	switch a.Function & 0xffff_ffff {
	case 0:
		mem := g.from(binary.LittleEndian.Uint64(a.Params))
		if copy(mem, a.Params[8:]) < len(a.Params)-8 {
			return g.deferred(c, cuda.ErrorIllegalAddress)
		}
	case 1:
		g.ch.PoisonContext(c.Context, int32(cuda.ErrorIllegalAddress))
	}
	return 0
}

func (g *guest) StreamCreate(cuda.Call, cuda.StreamCreateArgs) cuda.Result {
	g.streams++
	return 0
}

func (g *guest) StreamDestroy(cuda.Call, cuda.StreamDestroyArgs) cuda.Result {
	g.streams--
	return 0
}
func (g *guest) StreamSynchronize(cuda.Call) cuda.Result                         { return 0 }
func (g *guest) StreamQuery(cuda.Call) cuda.Result                               { return 0 }
func (g *guest) StreamWaitEvent(cuda.Call, cuda.StreamWaitEventArgs) cuda.Result { return 0 }
func (g *guest) EventCreate(cuda.Call, cuda.EventCreateArgs) cuda.Result         { return 0 }
func (g *guest) EventDestroy(cuda.Call, cuda.EventDestroyArgs) cuda.Result       { return 0 }

func (g *guest) EventRecord(_ cuda.Call, a cuda.EventRecordArgs) cuda.Result {
	g.ch.CompleteEvent(a.Event, a.Serial)
	return 0
}
func (g *guest) EventSynchronize(cuda.Call, cuda.EventSynchronizeArgs) cuda.Result { return 0 }

func (g *guest) EventElapsed(cuda.Call, cuda.EventElapsedArgs) (cuda.EventElapsedResult, cuda.Result) {
	return cuda.EventElapsedResult{Nanoseconds: 2_500_000}, 0
}

// HostCallback is due at once. A synchronisation does not wait for it here, so its reply is held back instead: see
// CallbackWait.
func (g *guest) HostCallback(_ cuda.Call, a cuda.HostCallbackArgs) cuda.Result {
	g.callbacks = append(g.callbacks, cuda.CallbackWaitResult{Callback: a.Callback})
	g.handOut()
	return 0
}

func (g *guest) CallbackWait(c cuda.Call, _ cuda.CallbackWaitArgs) (cuda.CallbackWaitResult, cuda.Result) {
	g.waiting = append(g.waiting, c)
	g.handOut()
	return cuda.CallbackWaitResult{}, cuda.Deferred
}

func (g *guest) handOut() {
	for len(g.waiting) > 0 && len(g.callbacks) > 0 {
		c, due := g.waiting[0], g.callbacks[0]
		g.waiting, g.callbacks = g.waiting[1:], g.callbacks[1:]
		g.ch.Reply(c.ReplySlot, c.ReplyTag, 0, due.Append(nil))
	}
}

func (g *guest) ArrayCreate(_ cuda.Call, a cuda.ArrayCreateArgs) cuda.Result {
	size := map[uint32]uint64{1: 1, 2: 2, 3: 4, 8: 1, 9: 2, 10: 4, 16: 2, 32: 4}[a.Format] * uint64(a.Channels)
	n := &array{pitch: a.Width * size, height: max(a.Height, 1), depth: max(a.Depth, 1)}
	if n.pitch*n.height*n.depth > 1<<28 {
		return cuda.ErrorOutOfMemory
	}
	n.bytes = make([]byte, n.pitch*n.height*n.depth)
	g.arrays[a.Array] = n
	return 0
}

func (g *guest) ArrayDestroy(_ cuda.Call, a cuda.ArrayDestroyArgs) cuda.Result {
	delete(g.arrays, a.Array)
	return 0
}
func (g *guest) TextureCreate(cuda.Call, cuda.TextureCreateArgs) cuda.Result   { return 0 }
func (g *guest) SurfaceCreate(cuda.Call, cuda.SurfaceCreateArgs) cuda.Result   { return 0 }
func (g *guest) ReferenceBind(cuda.Call, cuda.ReferenceBindArgs) cuda.Result   { return 0 }
func (g *guest) TextureDestroy(cuda.Call, cuda.TextureDestroyArgs) cuda.Result { return 0 }
func (g *guest) Goodbye(cuda.Call) cuda.Result                                 { return 0 }

// absent returns the path of a socket without a listener, in a directory that exists or not.
func absent(dir bool) string {
	if dir {
		return os.TempDir() + "/pegasus-nobody.sock"
	}
	return "/nonexistent/pegasus/nobody.sock"
}
