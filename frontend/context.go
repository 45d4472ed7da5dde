package frontend

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// ErrArenaFull is returned when the arena has no room for a transfer.
var ErrArenaFull = errors.New("pegasus: the call buffer's arena is full; the domain's host_memory sets its size")

// ErrNoContext is returned when a process has reached its limit of contexts.
var ErrNoContext = errors.New("pegasus: a process has at most 255 contexts")

// argument is an operation's argument record.
type argument interface{ Append(b []byte) []byte }

func encode(a argument) []byte {
	if a == nil {
		return nil
	}
	return a.Append(make([]byte, 0, 128))
}

// record is an operation's result record.
type record interface{ Decode(b []byte) bool }

// Ping makes one empty round trip to the worker.
func (c *Client) Ping() error {
	var out [callbuf.MaxReplyData]byte
	_, err := c.Do(callbuf.Header{Op: uint16(cuda.OpNop)}, nil, out[:0])
	return err
}

// ask makes a call that has a reply and decodes it into r, if r is not nil.
func (c *Client) ask(h callbuf.Header, op cuda.Op, a argument, r record) error {
	h.Op = uint16(op)
	out, err := c.Do(h, encode(a), nil)
	if err != nil {
		return fmt.Errorf("%v: %w", op, err)
	}
	if r != nil && !r.Decode(out) {
		return fmt.Errorf("%v: reply of %d bytes not understood", op, len(out))
	}
	return nil
}

func (c *Client) queue(h callbuf.Header, op cuda.Op, a argument) error {
	h.Op = uint16(op)
	if err := c.Queue(h, encode(a)); err != nil {
		return fmt.Errorf("%v: %w", op, err)
	}
	return nil
}

// borrow runs f with a block of the arena.
func (c *Client) borrow(n uint64, f func(offset uint64, b []byte) error) error {
	e, ok := c.space.take(n)
	if !ok {
		return ErrArenaFull
	}
	defer c.space.give(e)
	return f(e.at, c.Arena()[e.at:e.at+n])
}

// Devices returns the process's devices.
func (c *Client) Devices() (s cuda.DeviceSnapshot, err error) {
	const room = 1 << 16
	err = c.borrow(room, func(offset uint64, b []byte) error {
		var r cuda.DeviceInfoResult
		if err := c.ask(callbuf.Header{}, cuda.OpDeviceInfo, &cuda.DeviceInfoArgs{ArenaOffset: offset, Capacity: room}, &r); err != nil {
			return err
		}
		return decoded(cuda.OpDeviceInfo, b, r.Length, &s)
	})
	return s, err
}

// Usage returns the use of the accelerator by the process's domain.
func (c *Client) Usage() (u cuda.DomainUsage, err error) {
	const room = 1 << 14
	err = c.borrow(room, func(offset uint64, b []byte) error {
		var r cuda.DomainUsageResult
		if err := c.ask(callbuf.Header{}, cuda.OpDomainUsage, &cuda.DomainUsageArgs{ArenaOffset: offset, Capacity: room}, &r); err != nil {
			return err
		}
		return decoded(cuda.OpDomainUsage, b, r.Length, &u)
	})
	return u, err
}

// decoded decodes a result from a block of the arena, which the host may go on writing.
func decoded(op cuda.Op, block []byte, length uint64, r record) error {
	if length > uint64(len(block)) || !r.Decode(bytes.Clone(block[:length])) {
		return fmt.Errorf("%v: %d bytes not understood", op, length)
	}
	return nil
}

// Context is a CUDA context. Device memory, modules, streams and events belong to it.
type Context struct {
	c  *Client
	id uint32
}

// contexts is the set of context ids in use.
type contexts struct {
	mu   sync.Mutex
	used [callbuf.MaxContexts]bool
}

func (t *contexts) take() (uint32, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := 1; id < len(t.used); id++ {
		if !t.used[id] {
			t.used[id] = true
			return uint32(id), true
		}
	}
	return 0, false
}

func (t *contexts) give(id uint32) {
	t.mu.Lock()
	t.used[id] = false
	t.mu.Unlock()
}

// NewContext creates a context on a device.
func (c *Client) NewContext(device int32, flags uint32) (*Context, error) {
	id, ok := c.contexts.take()
	if !ok {
		return nil, ErrNoContext
	}
	if err := c.ask(callbuf.Header{Context: id}, cuda.OpContextCreate, &cuda.ContextCreateArgs{Device: device, Flags: flags}, nil); err != nil {
		c.contexts.give(id)
		return nil, err
	}
	return &Context{c, id}, nil
}

func (x *Context) header(s Stream) callbuf.Header {
	return callbuf.Header{Context: x.id, Stream: uint64(s)}
}

// Destroy destroys the context and frees all its objects.
func (x *Context) Destroy() error {
	err := x.c.ask(x.header(0), cuda.OpContextDestroy, nil, nil)
	x.c.contexts.give(x.id)
	return err
}

// Synchronize waits for all queued work and returns its first error.
func (x *Context) Synchronize() error {
	return x.c.ask(x.header(0), cuda.OpContextSynchronize, nil, nil)
}

// Alloc returns the address of n bytes of zeroed device memory.
func (x *Context) Alloc(n uint64) (uint64, error) {
	var r cuda.MemAllocResult
	err := x.c.ask(x.header(0), cuda.OpMemAlloc, &cuda.MemAllocArgs{Size: n}, &r)
	return r.Address, err
}

// Free releases device memory once the work queued before has ended.
func (x *Context) Free(addr uint64) error {
	return x.c.ask(x.header(0), cuda.OpMemFree, &cuda.MemFreeArgs{Address: addr}, nil)
}

// MemInfo returns the free and the total device memory of the domain.
func (x *Context) MemInfo() (free, total uint64, err error) {
	var r cuda.MemInfoResult
	err = x.c.ask(x.header(0), cuda.OpMemInfo, nil, &r)
	return r.Free, r.Total, err
}

// Stream identifies a stream; zero is the default one.
type Stream uint64

// NewStream creates a stream; flags are CUstream_flags.
func (x *Context) NewStream(flags uint32) (Stream, error) {
	s := Stream(x.c.ids.Add(1))
	return s, x.c.queue(x.header(0), cuda.OpStreamCreate, &cuda.StreamCreateArgs{Stream: uint64(s), Flags: flags})
}

// SynchronizeStream waits for the stream's work.
func (x *Context) SynchronizeStream(s Stream) error {
	return x.c.ask(x.header(s), cuda.OpStreamSynchronize, nil, nil)
}

// DestroyStream destroys a stream once its work has ended.
func (x *Context) DestroyStream(s Stream) error {
	return x.c.queue(x.header(0), cuda.OpStreamDestroy, &cuda.StreamDestroyArgs{Stream: uint64(s)})
}

// CopyIn copies b to device memory and blocks until the copy has ended.
func (x *Context) CopyIn(dst uint64, b []byte) error {
	return x.c.borrow(uint64(len(b)), func(at uint64, staging []byte) error {
		copy(staging, b)
		return x.c.ask(x.header(0), cuda.OpCopyLinear, &cuda.CopyLinearArgs{
			Dst: dst, Src: at, Length: uint64(len(b)), DstKind: cuda.EndDevice, SrcKind: cuda.EndArena}, nil)
	})
}

// CopyOut copies device memory to b.
func (x *Context) CopyOut(b []byte, src uint64) error {
	return x.c.borrow(uint64(len(b)), func(at uint64, staging []byte) error {
		err := x.c.ask(x.header(0), cuda.OpCopyLinear, &cuda.CopyLinearArgs{
			Dst: at, Src: src, Length: uint64(len(b)), DstKind: cuda.EndArena, SrcKind: cuda.EndDevice}, nil)
		copy(b, staging)
		return err
	})
}

// Fill sets n bytes of device memory to v.
func (x *Context) Fill(s Stream, dst uint64, v byte, n uint64) error {
	return x.c.queue(x.header(s), cuda.OpFill, &cuda.FillArgs{Dst: dst, Width: n, Height: 1, Pitch: n, Value: uint32(v), ElementSize: 1})
}

// Event identifies an event.
type Event uint64

// NewEvent creates an event; flags are CUevent_flags.
func (x *Context) NewEvent(flags uint32) (Event, error) {
	e := Event(x.c.ids.Add(1))
	return e, x.c.queue(x.header(0), cuda.OpEventCreate, &cuda.EventCreateArgs{Event: uint64(e), Flags: flags})
}

// Record records e in a stream; serial must be above all earlier ones of e, and Client.EventSerial returns it
// once the record has completed.
func (x *Context) Record(s Stream, e Event, serial uint64) error {
	return x.c.queue(x.header(s), cuda.OpEventRecord, &cuda.EventRecordArgs{Event: uint64(e), Serial: serial})
}

// WaitEvent makes later work of a stream wait for e's latest record.
func (x *Context) WaitEvent(s Stream, e Event) error {
	return x.c.queue(x.header(s), cuda.OpStreamWaitEvent, &cuda.StreamWaitEventArgs{Event: uint64(e)})
}

// SynchronizeEvent waits for e's latest record.
func (x *Context) SynchronizeEvent(e Event) error {
	return x.c.ask(x.header(0), cuda.OpEventSynchronize, &cuda.EventSynchronizeArgs{Event: uint64(e)}, nil)
}

// Module is a loaded image.
type Module struct {
	x      *Context
	id     uint64
	Layout cuda.ModuleLayout
}

const (
	layoutRoom = 4 << 20
	logRoom    = 64 << 10
)

// LoadModule loads an image; log is the compiler's output, if any.
func (x *Context) LoadModule(image []byte) (m *Module, log string, err error) {
	m = &Module{x: x, id: x.c.ids.Add(1)}
	n := uint64(len(image))
	layoutAt := (n + 7) &^ 7
	err = x.c.borrow(layoutAt+layoutRoom+logRoom, func(at uint64, b []byte) error {
		copy(b, image)
		out, err := x.c.Do(callbuf.Header{Op: uint16(cuda.OpModuleLoad), Context: x.id}, encode(&cuda.ModuleLoadArgs{
			Module: m.id, ImageOffset: at, ImageLength: n, LayoutOffset: at + layoutAt, LayoutCapacity: layoutRoom,
			LogOffset: at + layoutAt + layoutRoom, LogCapacity: logRoom}), nil)
		var r cuda.ModuleLoadResult
		if !r.Decode(out) {
			r = cuda.ModuleLoadResult{}
		}
		log = string(b[layoutAt+layoutRoom:][:min(r.LogLength, logRoom)])
		if err != nil {
			return fmt.Errorf("%v: %w", cuda.OpModuleLoad, err)
		}
		if !m.Layout.Decode(b[layoutAt:][:min(r.LayoutLength, layoutRoom)]) {
			return fmt.Errorf("%v: layout of %d bytes not understood", cuda.OpModuleLoad, r.LayoutLength)
		}
		return nil
	})
	return m, log, err
}

// Function returns the index of a kernel, for Launch.
func (m *Module) Function(name string) (int, error) {
	for i := range m.Layout.Functions {
		if m.Layout.Functions[i].Name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("kernel %q: %w", name, cuda.ErrorNotFound)
}

// Launch queues a kernel.
func (m *Module) Launch(s Stream, function int, grid, block [3]uint32, shared uint32, params []byte) error {
	return m.x.c.queue(m.x.header(s), cuda.OpLaunch, &cuda.LaunchArgs{
		Function: cuda.LaunchFunction(m.id, uint32(function)), Grid: grid, Block: block, SharedBytes: shared, Params: params})
}

// Unload unloads the module once the work that uses it has ended.
func (m *Module) Unload() error {
	return m.x.c.queue(m.x.header(0), cuda.OpModuleUnload, &cuda.ModuleUnloadArgs{Module: m.id})
}
