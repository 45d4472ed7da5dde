package worker

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// fakeDevice implements accel.Device on memory of its own, with a goroutine for each stream. Its modules have four
// kernels: 0 adds 1 to a 64-bit word, 1 waits for the test's permission and adds 1, 2 faults, 3 exceeds the kernel
// timeout.
type fakeDevice struct {
	place Place
	leave chan struct{} // kernel 1 takes one for each run

	mu   sync.Mutex
	next uint64
	mem  map[uint64][]byte
	live int // contexts
	last *fakeContext
	cost int64

	prepared atomic.Pointer[func()] // called by Prepare; may be nil
	ready    atomic.Bool            // Prepare has nothing to do
}

func newFake(p Place) *fakeDevice {
	if p.DeviceBase == 0 {
		p.DeviceBase = 0x3000_0000_0000
	}
	if p.Quota == nil {
		p.Quota = func(int64) bool { return true }
	}
	return &fakeDevice{place: p, leave: make(chan struct{}, 1000), next: p.DeviceBase, mem: map[uint64][]byte{}, cost: 1000}
}

func (d *fakeDevice) Capabilities() accel.Capabilities { return accel.Capabilities{Control: d} }

// Queued returns 1: the device does not count, and never reports that it is idle.
func (d *fakeDevice) Queued() int { return 1 }

func (d *fakeDevice) Abort() {}

// LimitKernels behaves as if a kernel had exceeded the timeout already.
func (d *fakeDevice) LimitKernels(time.Duration) { d.place.OnTimeout() }

const fakeMemory = 1 << 30

func (d *fakeDevice) Snapshot() cuda.Device {
	return cuda.Device{Name: "fake", TotalMem: fakeMemory}
}

func (d *fakeDevice) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live != 0 {
		return errors.New("contexts are left")
	}
	return nil
}

func (d *fakeDevice) NewContext(uint32) (accel.Context, cuda.Result) {
	c := &fakeContext{d: d, gone: make(chan struct{}), own: map[uint64]bool{}}
	c.def = c.newStream()
	d.mu.Lock()
	d.live++
	d.last = c
	d.mu.Unlock()
	return c, cuda.Success
}

// at returns size bytes at an address. d.mu is held.
func (d *fakeDevice) at(addr, size uint64) []byte {
	for base, m := range d.mem {
		if addr >= base && addr-base <= uint64(len(m)) && size <= uint64(len(m))-(addr-base) {
			return m[addr-base:][:size]
		}
	}
	return nil
}

type fakeContext struct {
	d       *fakeDevice
	gone    chan struct{}
	running sync.WaitGroup // streams
	def     *fakeStream
	streams []*fakeStream
	own     map[uint64]bool

	mu     sync.Mutex
	err    cuda.Result
	said   []byte
	onText func(bool)
}

func (c *fakeContext) Capabilities() accel.ContextCapabilities {
	return accel.ContextCapabilities{Printf: c, Preparation: c}
}

func (c *fakeContext) OnOutput(f func(waits bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onText = f
}

func (c *fakeContext) MayPrint() bool { return true }

// tell does the work of a printing kernel.
func (c *fakeContext) tell(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, text...)
	c.onText(true)
}

func (c *fakeContext) ReadOutput(to []byte) (n int, of accel.File, left uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = copy(to, c.said)
	c.said = c.said[n:]
	c.onText(len(c.said) > 0)
	return n, accel.Stderr, uint64(len(c.said))
}

func (c *fakeContext) Err() cuda.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *fakeContext) fail(r cuda.Result) cuda.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == cuda.Success && r.Sticky() {
		c.err = r
	}
	return r
}

func (c *fakeContext) Alloc(size uint64) (uint64, cuda.Result) {
	if !c.d.place.Quota(int64(size)) {
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

func (c *fakeContext) Free(addr uint64, done func()) cuda.Result {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if !c.own[addr] {
		return cuda.ErrorInvalidValue
	}
	c.free(addr)
	done()
	return cuda.Success
}

func (c *fakeContext) free(addr uint64) {
	c.d.place.Quota(-int64(len(c.d.mem[addr])))
	delete(c.d.mem, addr)
	delete(c.own, addr)
}

type fakeModule struct{}

func (fakeModule) Unload()                                {}
func (fakeModule) Bind(uint64, accel.Texture) cuda.Result { return cuda.ErrorInvalidHandle }
func (fakeModule) Layout() *cuda.ModuleLayout {
	l := &cuda.ModuleLayout{}
	for _, n := range []string{"add", "wait", "fault", "endless"} {
		l.Functions = append(l.Functions, cuda.FunctionLayout{Name: n, ParamBytes: 8, Params: []cuda.ParamLayout{{Size: 8}}, MaxThreads: 1024})
	}
	return l
}

func (c *fakeContext) LoadModule(image []byte) (accel.Module, string, cuda.Result) {
	if string(image) != "fake" {
		return nil, "not fake", cuda.ErrorInvalidPTX
	}
	return fakeModule{}, "loaded", cuda.Success
}

func (d *fakeDevice) Inspect(image []byte) (*cuda.ModuleLayout, string, cuda.Result) {
	if string(image) != "fake" {
		return nil, "not fake", cuda.ErrorInvalidPTX
	}
	return fakeModule{}.Layout(), "", cuda.Success
}

func (c *fakeContext) newStream() *fakeStream {
	s := &fakeStream{c: c, work: make(chan func(), 1<<17)}
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

func (c *fakeContext) NewStream(flags uint32, _ int32) (accel.Stream, cuda.Result) {
	if flags > 1 {
		return nil, cuda.ErrorInvalidValue
	}
	return c.newStream(), cuda.Success
}

func (c *fakeContext) DefaultStream() accel.Stream { return c.def }

func (c *fakeContext) NewEvent(uint32) (accel.Event, cuda.Result) { return &fakeEvent{}, cuda.Success }

type fakeArray struct{}

func (fakeArray) Destroy()       {}
func (fakeArray) Handle() uint64 { return 0 }

func (c *fakeContext) NewArray(accel.ArrayDesc) (accel.Array, cuda.Result) {
	return fakeArray{}, cuda.Success
}

func (c *fakeContext) NewTexture(uint64, accel.TextureDesc) (accel.Texture, cuda.Result) {
	return fakeArray{}, cuda.Success
}

// panicLimit is a limit that triggers a bug of the device.
const panicLimit = 666

func (c *fakeContext) SetLimit(limit uint32, v uint64) (uint64, cuda.Result) {
	if limit == panicLimit {
		panic("limit 666")
	}
	return v, cuda.Success
}

func (c *fakeContext) Synchronize(done func(cuda.Result)) {
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

func (c *fakeContext) Destroy(done func()) {
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

type fakeStream struct {
	c       *fakeContext
	work    chan func()
	pending atomic.Int32 // submitted and not done
}

func (s *fakeStream) Query() cuda.Result {
	if s.pending.Load() != 0 {
		return cuda.ErrorNotReady
	}
	return s.c.Err()
}

func (s *fakeStream) Synchronize(done func(cuda.Result)) { s.work <- func() { done(s.c.Err()) } }
func (s *fakeStream) Ended(done func(cuda.Result))       { s.Synchronize(done) }
func (s *fakeStream) Destroy()                           {}

type fakeEvent struct {
	mu      sync.Mutex
	cond    []func(cuda.Result)
	pending int
	time    int64
}

func (e *fakeEvent) Destroy() {}

func (e *fakeEvent) Synchronize(done func(cuda.Result)) {
	e.mu.Lock()
	if e.pending != 0 {
		e.cond = append(e.cond, done)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	done(cuda.Success)
}

func (e *fakeEvent) Time() (int64, cuda.Result) {
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

func (e *fakeEvent) recorded() {
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

func (c *fakeContext) Prepare(*accel.Launch) {
	if f := c.d.prepared.Load(); f != nil {
		(*f)()
	}
}

func (c *fakeContext) Prepared(*accel.Launch) bool { return c.d.ready.Load() }

func (c *fakeContext) Submit(st accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s := st.(*fakeStream)
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
		e := r.Event.(*fakeEvent)
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
			r = c.fail(s.execute(w))
		}
		s.pending.Add(-1)
		done(r, c.usage(w))
		if rec, ok := w.(accel.Record); ok { // observers of the event have observed its record
			rec.Event.(*fakeEvent).recorded()
		}
	}
	return cuda.Success
}

func (c *fakeContext) usage(w accel.Work) accel.Usage {
	switch w.(type) {
	case accel.Launch:
		return accel.Usage{Class: accel.Compute, Start: 1, End: 1 + c.d.cost}
	case accel.Copy:
		return accel.Usage{Class: accel.CopyIn, Start: 1, End: 1 + c.d.cost}
	}
	return accel.Usage{}
}

func (s *fakeStream) execute(w accel.Work) cuda.Result {
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

func (s *fakeStream) await(ready chan struct{}) cuda.Result {
	select {
	case <-ready:
		return cuda.Success
	case <-s.c.gone:
		return cuda.ErrorContextIsDestroyed
	}
}

func (s *fakeStream) launch(w accel.Launch) cuda.Result {
	switch w.Function {
	case 1:
		select {
		case <-s.c.d.leave:
		case <-s.c.gone:
			return cuda.ErrorContextIsDestroyed
		}
	case 2:
		return cuda.ErrorIllegalAddress
	case 3:
		if s.c.d.place.OnTimeout != nil {
			s.c.d.place.OnTimeout()
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

func (c *fakeContext) copy(w accel.Copy) cuda.Result {
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
