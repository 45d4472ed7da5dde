package workertest

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// Device implements accel.Device on memory of its own, with a goroutine for each stream. Its modules have four
// kernels: 0 adds 1 to a 64-bit word, 1 waits for the test's permission and adds 1, 2 faults, 3 exceeds the kernel
// timeout.
type Device struct {
	config DeviceConfig
	Leave  chan struct{} // kernel 1 takes one for each run

	mu     sync.Mutex
	next   uint64
	mem    map[uint64][]byte
	live   int // contexts
	latest *Context
	Cost   int64 // ns for which each kernel and copy holds its engine

	Prepared atomic.Pointer[func()] // called by Prepare; may be nil
	Ready    atomic.Bool            // Prepare has nothing to do
	Polls    atomic.Bool            // a kernel only waits
}

// DeviceConfig is the part of a worker's address layout that the device uses. Fields may be zero.
type DeviceConfig struct {
	DeviceBase uint64
	Quota      func(delta int64) bool
	OnTimeout  func()
}

// NewDevice returns a device without contexts.
func NewDevice(p DeviceConfig) *Device {
	if p.DeviceBase == 0 {
		p.DeviceBase = 0x3000_0000_0000
	}
	if p.Quota == nil {
		p.Quota = func(int64) bool { return true }
	}
	return &Device{config: p, Leave: make(chan struct{}, 1000), next: p.DeviceBase, mem: map[uint64][]byte{}, Cost: 1000}
}

// LimitKernels behaves as if a kernel had exceeded the timeout already.
func (d *Device) LimitKernels(time.Duration) { d.config.OnTimeout() }

const memoryBytes = 1 << 30

func (d *Device) Snapshot() cuda.Device {
	return cuda.Device{Name: "fake", TotalMem: memoryBytes}
}

func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live != 0 {
		return errors.New("contexts are left")
	}
	return nil
}

// Capabilities implements accel.Device.
func (d *Device) Capabilities() accel.Capabilities { return accel.Capabilities{Control: d, Waiting: d} }

// Polling implements accel.WaitFinder.
func (d *Device) Polling() bool { return d.Polls.Load() }

// Queued returns 1: the device does not count, and never reports that it is idle.
func (d *Device) Queued() int { return 1 }

// Abort does nothing.
func (d *Device) Abort() {}

func (d *Device) NewContext(uint32) (accel.Context, cuda.Result) {
	c := &Context{d: d, gone: make(chan struct{}), own: map[uint64]bool{}}
	c.def = c.newStream()
	d.mu.Lock()
	d.live++
	d.latest = c
	d.mu.Unlock()
	return c, cuda.Success
}

// Latest returns the context that was created last.
func (d *Device) Latest() *Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest
}

// at returns size bytes at an address. d.mu is held.
func (d *Device) at(addr, size uint64) []byte {
	for base, m := range d.mem {
		if addr >= base && addr-base <= uint64(len(m)) && size <= uint64(len(m))-(addr-base) {
			return m[addr-base:][:size]
		}
	}
	return nil
}

// Context implements accel.Context.
type Context struct {
	d       *Device
	gone    chan struct{}
	running sync.WaitGroup // streams
	def     *stream
	streams []*stream
	own     map[uint64]bool

	mu     sync.Mutex
	err    cuda.Result
	text   []byte
	onText func(bool)
}

// Capabilities implements accel.Context.
func (c *Context) Capabilities() accel.ContextCapabilities {
	return accel.ContextCapabilities{Printf: c, Preparation: c}
}

func (c *Context) OnOutput(f func(waits bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onText = f
}

func (c *Context) MayPrint() bool { return true }

// Tell does the work of a printing kernel.
func (c *Context) Tell(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, text...)
	c.onText(true)
}

func (c *Context) ReadOutput(to []byte) (n int, of accel.File, left uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = copy(to, c.text)
	c.text = c.text[n:]
	c.onText(len(c.text) > 0)
	return n, accel.Stderr, uint64(len(c.text))
}

func (c *Context) Err() cuda.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Fail gives the context the error r, if it is sticky and the first one, and returns r.
func (c *Context) Fail(r cuda.Result) cuda.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == cuda.Success && r.Sticky() {
		c.err = r
	}
	return r
}

func (c *Context) Alloc(size uint64) (uint64, cuda.Result) {
	if !c.d.config.Quota(int64(size)) {
		return 0, cuda.ErrorOutOfMemory
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	addr := c.d.next
	c.d.next += (size + 511) &^ 511
	c.d.mem[addr] = make([]byte, size)
	c.own[addr] = true
	return addr, cuda.Success
}

func (c *Context) Free(addr uint64, done func()) cuda.Result {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if !c.own[addr] {
		return cuda.ErrorInvalidValue
	}
	c.free(addr)
	done()
	return cuda.Success
}

func (c *Context) free(addr uint64) {
	c.d.config.Quota(-int64(len(c.d.mem[addr])))
	delete(c.d.mem, addr)
	delete(c.own, addr)
}

type module struct{}

func (module) Unload()                                {}
func (module) Bind(uint64, accel.Texture) cuda.Result { return cuda.ErrorInvalidHandle }
func (module) Layout() *cuda.ModuleLayout {
	l := &cuda.ModuleLayout{}
	for _, n := range []string{"add", "wait", "fault", "endless"} {
		l.Functions = append(l.Functions, cuda.FunctionLayout{Name: n, ParamBytes: 8, Params: []cuda.ParamLayout{{Size: 8}}, MaxThreads: 1024})
	}
	return l
}

func (c *Context) LoadModule(image []byte) (accel.Module, string, cuda.Result) {
	if string(image) != "fake" {
		return nil, "not fake", cuda.ErrorInvalidPTX
	}
	return module{}, "loaded", cuda.Success
}

func (d *Device) Inspect(image []byte) (*cuda.ModuleLayout, string, cuda.Result) {
	if string(image) != "fake" {
		return nil, "not fake", cuda.ErrorInvalidPTX
	}
	return module{}.Layout(), "", cuda.Success
}

func (c *Context) newStream() *stream {
	s := &stream{c: c, work: make(chan func(), 1<<17)}
	c.streams = append(c.streams, s)
	c.running.Go(func() {
		for {
			select {
			case f := <-s.work:
				f()
			case <-c.gone:
				return
			}
		}
	})
	return s
}

func (c *Context) NewStream(flags uint32, _ int32) (accel.Stream, cuda.Result) {
	if flags > 1 {
		return nil, cuda.ErrorInvalidValue
	}
	return c.newStream(), cuda.Success
}

func (c *Context) DefaultStream() accel.Stream { return c.def }

func (c *Context) NewEvent(uint32) (accel.Event, cuda.Result) { return &event{}, cuda.Success }

type array struct{}

func (array) Destroy()       {}
func (array) Handle() uint64 { return 0 }

func (c *Context) NewArray(accel.ArrayDesc) (accel.Array, cuda.Result) {
	return array{}, cuda.Success
}

func (c *Context) NewTexture(uint64, accel.TextureDesc) (accel.Texture, cuda.Result) {
	return array{}, cuda.Success
}

// PanicLimit is a limit that triggers a bug of the device.
const PanicLimit = 666

func (c *Context) SetLimit(limit uint32, v uint64) (uint64, cuda.Result) {
	if limit == PanicLimit {
		panic("limit 666")
	}
	return v, cuda.Success
}

func (c *Context) Synchronize(done func(cuda.Result)) {
	left := len(c.streams)
	var mu sync.Mutex
	for _, s := range c.streams {
		s.work <- func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				done(c.Err())
			}
		}
	}
}

func (c *Context) Destroy(done func()) {
	close(c.gone)
	go func() {
		c.running.Wait()
		c.d.mu.Lock()
		for addr := range c.own {
			c.free(addr)
		}
		c.d.live--
		c.d.mu.Unlock()
		done()
	}()
}

type stream struct {
	c       *Context
	work    chan func()
	pending atomic.Int32 // submitted and not done
}

func (s *stream) Query() cuda.Result {
	if s.pending.Load() != 0 {
		return cuda.ErrorNotReady
	}
	return s.c.Err()
}

func (s *stream) Synchronize(done func(cuda.Result)) { s.work <- func() { done(s.c.Err()) } }
func (s *stream) Ended(done func(cuda.Result))       { s.Synchronize(done) }
func (s *stream) Destroy()                           {}

type event struct {
	mu      sync.Mutex
	cond    []func(cuda.Result)
	pending int
	time    int64
}

func (e *event) Destroy() {}

func (e *event) Synchronize(done func(cuda.Result)) {
	e.mu.Lock()
	if e.pending != 0 {
		e.cond = append(e.cond, done)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	done(cuda.Success)
}

func (e *event) Time() (int64, cuda.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.pending != 0:
		return 0, cuda.ErrorNotReady
	case e.time == 0:
		return 0, cuda.ErrorInvalidHandle
	}
	return e.time, cuda.Success
}

func (e *event) recorded() {
	e.mu.Lock()
	e.pending--
	e.time++
	waiting := e.cond
	e.cond = nil
	e.mu.Unlock()
	for _, done := range waiting {
		done(cuda.Success)
	}
}

func (c *Context) Prepare(*accel.Launch) {
	if f := c.d.Prepared.Load(); f != nil {
		(*f)()
	}
}

func (c *Context) Prepared(*accel.Launch) bool { return c.d.Ready.Load() }

func (c *Context) Submit(st accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s := st.(*stream)
	if r := c.Err(); r != cuda.Success {
		return r
	}
	switch p := w.(type) { // pointed-to values belong to the caller again after Submit
	case *accel.Launch:
		l := *p
		if l.Grid[0] == 0 {
			return cuda.ErrorInvalidValue
		}
		l.Params = append([]byte(nil), l.Params...)
		w = l
	case *accel.Copy:
		w = *p
	case *accel.Fill:
		w = *p
	}
	if r, ok := w.(accel.Record); ok {
		e := r.Event.(*event)
		e.mu.Lock()
		e.pending++
		e.mu.Unlock()
	}
	var ready chan struct{} // the condition for the end of a wait, which is that of the present record
	if w, ok := w.(accel.WaitEvent); ok {
		ready = make(chan struct{})
		w.Event.Synchronize(func(cuda.Result) { close(ready) })
	}
	s.pending.Add(1)
	s.work <- func() {
		if ready != nil {
			s.await(ready)
		}
		r := c.Err()
		if r == cuda.Success {
			r = c.Fail(s.execute(w))
		}
		s.pending.Add(-1)
		done(r, c.usage(w))
		if rec, ok := w.(accel.Record); ok { // observers of the event have observed its record
			rec.Event.(*event).recorded()
		}
	}
	return cuda.Success
}

func (c *Context) usage(w accel.Work) accel.Usage {
	switch w.(type) {
	case accel.Launch:
		return accel.Usage{Class: accel.Compute, Start: 1, End: 1 + c.d.Cost}
	case accel.Copy:
		return accel.Usage{Class: accel.CopyIn, Start: 1, End: 1 + c.d.Cost}
	}
	return accel.Usage{}
}

func (s *stream) execute(w accel.Work) cuda.Result {
	switch w := w.(type) {
	case accel.Launch:
		return s.launch(w)
	case accel.Copy:
		return s.c.copy(w)
	case accel.HostFunc:
		ready := make(chan struct{})
		w.Due(cuda.Success, sync.OnceFunc(func() { close(ready) }))
		return s.await(ready)
	}
	return cuda.Success
}

func (s *stream) await(ready chan struct{}) cuda.Result {
	select {
	case <-ready:
		return cuda.Success
	case <-s.c.gone:
		return cuda.ErrorContextIsDestroyed
	}
}

func (s *stream) launch(w accel.Launch) cuda.Result {
	switch w.Function {
	case 1:
		select {
		case <-s.c.d.Leave:
		case <-s.c.gone:
			return cuda.ErrorContextIsDestroyed
		}
	case 2:
		return cuda.ErrorIllegalAddress
	case 3:
		if s.c.d.config.OnTimeout != nil {
			s.c.d.config.OnTimeout()
		}
		return cuda.ErrorLaunchTimeout
	}
	if len(w.Params) != 8 {
		return cuda.ErrorIllegalAddress
	}
	s.c.d.mu.Lock()
	defer s.c.d.mu.Unlock()
	word := s.c.d.at(le.Uint64(w.Params), 8)
	if word == nil {
		return cuda.ErrorIllegalAddress
	}
	le.PutUint64(word, le.Uint64(word)+1)
	return cuda.Success
}

func (c *Context) copy(w accel.Copy) cuda.Result {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	end := func(e accel.End) []byte {
		if e.Host != nil {
			return e.Host
		}
		return c.d.at(e.Address, (w.Depth-1)*e.Pitch*e.Height+(w.Height-1)*e.Pitch+w.Width)
	}
	dst, src := end(w.Dst), end(w.Src)
	if dst == nil || src == nil {
		return cuda.ErrorInvalidValue
	}
	for z := range w.Depth {
		for y := range w.Height {
			d, s := z*w.Dst.Pitch*w.Dst.Height+y*w.Dst.Pitch, z*w.Src.Pitch*w.Src.Height+y*w.Src.Pitch
			copy(dst[d:d+w.Width], src[s:s+w.Width])
		}
	}
	return cuda.Success
}

var le = binary.LittleEndian
