// Package soft is an accelerator that consists of the host's CPU cores: it runs PTX kernels, has device memory of its
// own, and behaves as CUDA specifies for a device. A worker process opens one Device for its guest process.
//
// All workers of an accelerator share its engines (package engine), so that it is one accelerator for any number of
// processes. A Device has one executor per engine; each holds the engine's token while it executes one piece of work,
// or several kernels at the same time, and reports the time for which the token was held. Kernels, fills and copies
// inside the device use the compute engine, since the same cores execute all of them; copies to and from host memory
// use one engine per direction.
//
// Guest requests are checked here when they are submitted; the lane engine checks the memory accesses of kernels
// against the allocations.
//
// Callers: cmd/pegasusd, which opens a Device in each worker; the worker calls it through package accel.
//
// Trust boundary: images, kernels, addresses and sizes are the guest's, and hostile. The Engines page of the domain and
// the Memory page of the accelerator are shared with other workers, of which any may be compromised (package engine).
package soft

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/history"
	"pegasus/accel/internal/frame"
	"pegasus/accel/ptx"
	"pegasus/accel/residence"
	"pegasus/accel/soft/engine"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

// Config describes the device to open, and its callbacks.
type Config struct {
	Name   string // the accelerator's, from the configuration; names its stable UUID
	Domain string // of the guest process
	Cores  int    // goroutines that run kernels, all together; 0 for all cores
	Memory uint64 // bytes of device memory; 0 for the size in the accelerator's page
	Swap   uint64 // bytes that may be allocated beyond Memory; of a private accelerator only

	// KernelTimeout is the time, in ns, after which a kernel is ended; 0: never. LimitKernels changes it.
	KernelTimeout int64
	// OnTimeout is called when a kernel was ended that ran for too long, or when such a kernel doesn't end. It must not
	// block.
	OnTimeout func()
	// OnFault is called with a description of a kernel's fault, before any call returns its error. It must not block.
	OnFault func(r cuda.Result, text string)

	// RefusePTX selects when unknown instructions are refused.
	RefusePTX ptx.When

	// Shared is the page of the accelerator, and Engines that of the domain on it; nil creates private ones. The caller
	// keeps ownership.
	Shared  *engine.Memory
	Engines *engine.Engines

	// Device memory has addresses in [DeviceBase, +DeviceBytes), multiples of memory.SlabSize. Reserved is set if the
	// range is reserved already (PROT_NONE).
	DeviceBase, DeviceBytes uint64
	Reserved                bool

	// Arena is host memory that kernels may address at ArenaBase, where it must lie in this process too; 0 if the guest
	// could not map it at the same address.
	Arena     []byte
	ArenaBase uint64

	// Quota is called before device memory is allocated (delta > 0; false refuses it), and after it is freed (delta <
	// 0; the result is ignored). nil allows everything.
	Quota func(delta int64) bool

	// Share is the domain's share of the device memory; SetShare changes it.
	Share accel.Share

	// Swapped is called for memory that is evicted or comes back. It may be nil.
	Swapped residence.Moved

	// Turn reports when work may hold an engine. Long work releases its engine when the turn is over, and continues in
	// the next. nil: it is always its turn.
	Turn accel.Turn

	Clock func() int64 // CLOCK_MONOTONIC, ns; nil for engine.Now
	Log   *slog.Logger // a line per fault; nil for none
}

// Device is an open software accelerator.
type Device struct {
	config    Config
	clock     func() int64
	log       *slog.Logger
	executors [engine.NumTokens]*executor
	deviceMemory

	running  sync.WaitGroup // executors
	watchdog watchdog
	history  history.Table
	profile  profile
	checks   checks
	values   values

	mu        sync.Mutex // guards the fields below, contexts, streams, events and nodes
	freed     sync.Cond  // a context has fewer pending frees
	reported  sync.Cond  // a node has ended and its callbacks have returned
	spare     *node
	hostFuncs int // submitted and not finished
	contexts  map[*Context]struct{}
	queued    atomic.Int64 // nodes that have not ended, and waits for them
	closing   atomic.Bool
	aborted   atomic.Bool
	close     func() error // once
}

var (
	_ accel.Device  = (*Device)(nil)
	_ accel.Context = (*Context)(nil)
)

// Open opens a device.
func Open(c Config) (*Device, error) {
	if c.Cores <= 0 {
		c.Cores = runtime.NumCPU()
	}
	if c.Clock == nil {
		c.Clock = engine.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := lane.UseEngine(os.Getenv(lane.EngineVariable)); err != nil {
		c.Log.Warn("engine", "err", err)
	}
	d := &Device{config: c, clock: c.Clock, log: c.Log, contexts: map[*Context]struct{}{}}
	d.freed.L = &d.mu
	d.reported.L = &d.mu
	d.close = sync.OnceValue(d.shut)
	d.deviceMemory.aborted = d.aborted.Load
	if err := d.deviceMemory.open(&d.config); err != nil {
		return nil, errors.Join(err, d.deviceMemory.close())
	}
	d.watchdog.init(d)
	for k := range d.executors {
		d.executors[k] = newExecutor(d, engine.Token(k))
		d.executors[k].start()
	}
	return d, nil
}

// Close cancels all work, waits until no work runs any more, and frees everything. No other call may be in progress.
func (d *Device) Close() error { return d.close() }

func (d *Device) shut() error {
	awaitContexts := frame.DestroyAll(&d.mu, d.contexts)
	d.closing.Store(true)
	for k, e := range d.executors {
		d.worker.Nudge(engine.Token(k))
		e.alert()
	}
	awaitContexts()
	d.mu.Lock()
	for _, e := range d.executors {
		e.close()
	}
	d.mu.Unlock()
	d.running.Wait()
	d.watchdog.stop()
	return d.deviceMemory.close()
}

// Abort ends running work as if its context were destroyed, and all later work likewise.
func (d *Device) Abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.aborted.Store(true)
	for _, e := range d.executors {
		e.cancelContext(nil)
	}
}

// NewContext creates a context.
func (d *Device) NewContext(flags uint32) (accel.Context, cuda.Result) {
	if d.closing.Load() {
		return nil, cuda.ErrorDeinitialized
	}
	c := newContext(d)
	d.mu.Lock()
	d.contexts[c] = struct{}{}
	d.mu.Unlock()
	return c, cuda.Success
}

// MemoryUsed returns the bytes of device memory in use by all workers of the accelerator.
func (d *Device) MemoryUsed() uint64 { return d.shared.Used() }

// MemoryFree returns the bytes that this process may still allocate, if its domain's quota allows it.
func (d *Device) MemoryFree() uint64 { return uint64(max(d.worker.Room(), 0)) }

// Queued returns the number of pieces of work that have not ended, plus the waits for them.
func (d *Device) Queued() int { return int(d.queued.Load()) }

// TrySpin reports whether the caller got one of the host's seats for spinning threads; if so, it must call EndSpin.
func (d *Device) TrySpin() bool { return d.worker.TrySpin() }

// EndSpin returns a seat.
func (d *Device) EndSpin() { d.worker.EndSpin() }

// Saturated reports whether a kernel of any worker occupies every core; then no thread should spin.
func (d *Device) Saturated() bool { return d.worker.Saturated() }
