//go:build cgo

// Package nvidia is an NVIDIA accelerator: the driver's library (package driver) executes everything. A worker process
// opens one Device for its guest process; each guest context is a context of the driver.
//
// The driver orders the streams and executes their work. This package checks guest requests, since the driver takes an
// unknown address for one of this process's own memory; zeroes memory before it is handed out; copies host memory that
// the device can't access by way of memory that it can; and waits for the end of all work and reports it, in order.
//
// Each stream with unfinished work has one goroutine, which waits for the ends of its operations one after the other.
// For an operation that is predicted to be short, and while the stream is empty for a moment, it polls for
// Config.SpinTime at most, if it gets one of the host's seats; then it sleeps in the driver. Two events around an
// operation measure when the device executed it. While kernels are queued, a watchdog samples the running ones four
// times within the time limit.
//
// A kernel can't be ended: the driver has no call for that. Only the end of the process ends it, so a timeout has to
// lead to that (Config.OnTimeout). Destroying a context waits for the submitted work.
//
// One mutex guards everything; it is not held across calls of the driver.
//
// Callers: cmd/pegasus-nvidia, which opens a Device in each worker; the worker calls it through package accel.
//
// Trust boundary: the driver's library is trusted, the guest's images, addresses and sizes are not.
package nvidia

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/history"
	"pegasus/accel/internal/frame"
	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/listing"
	"pegasus/cuda"
)

// Config describes the device to open, and its callbacks.
type Config struct {
	Library string // of the driver; "" for driver.DefaultLibrary
	Device  string // its index or UUID, "" for the first
	Memory  uint64 // the most memory to offer; 0 for all of the device's
	Context uint64 // bytes that each context takes of it for itself, which count as the guest's

	// KernelTimeout is the time limit of a kernel (ns); 0: none. LimitKernels changes it.
	KernelTimeout int64
	// OnTimeout is called when a kernel ran for longer. It must not block, and has to end the process: the kernel runs
	// on.
	OnTimeout func()

	// Device memory has addresses in [DeviceBase, +DeviceBytes) if the driver supports that. Reserved is set if the
	// range is reserved (PROT_NONE); the reservation is dropped while the driver starts, and right before the driver
	// reserves the range.
	DeviceBase, DeviceBytes uint64
	Reserved                bool

	// Arena is host memory that kernels may address at ArenaBase, where it must lie in this process too; 0 if the guest
	// could not map it at the same address. Shared is the mapping of the same memory that End.Host uses.
	Arena     []byte
	ArenaBase uint64
	Shared    []byte

	// Quota is called before device memory is allocated (delta > 0; false refuses it), and after it is freed (delta <
	// 0; the result is ignored). nil allows everything.
	Quota func(delta int64) bool
	// Swap, if not nil, allows allocations to be evicted while other processes need device memory. Quota then is the
	// domain's alone: device memory is reserved at the MemoryLedger.
	Swap *Swap
	// Used is called with the time for which an engine was held. It may be nil.
	Used func(c accel.Class, ns int64)
	// Executes is called with the time since when an engine has been executing work of this process that Used has not
	// reported yet, or 0, as last seen by the watchdog: the charge if the process dies now. It may be nil.
	Executes func(c accel.Class, since int64)

	// Printed is the other end, non-blocking, of this process's standard output, to which the driver writes device
	// printf output; the Device closes it. nil: that output is lost.
	Printed *os.File

	// Seats, if not nil, limits the threads that spin for the end of work; each needs a seat and spins for SpinTime
	// (ns) at most.
	Seats    Seats
	SpinTime int64

	Clock func() int64 // CLOCK_MONOTONIC, ns
	Log   *slog.Logger // nil for none
}

// Device is an open device.
type Device struct {
	config Config
	properties
	text  text
	clock func() int64
	log   *slog.Logger

	pinned   []byte // the arena, if the device can access it, if possible at the arena's own address
	store    store  // allocates device memory
	segments segments
	swap     *swap // nil: no eviction

	history  history.Table
	watchdog watchdog
	reaper   reaper
	close    func() error // once

	queued  atomic.Int64 // operations that have not ended, and waits for them
	aborted atomic.Bool

	mu       sync.Mutex // guards the fields below, contexts, streams, events and operations
	changed  sync.Cond  // an end was reported, or something was released or freed
	contexts map[*Context]struct{}
	spare    *Context // created in advance for the guest; nil: none
	pinner   *Context // the context whose registration of the arena is in force; nil: none
	spans    spans
	charged  [accel.NumClasses]charged
	held     int // host functions that have not finished
}

// properties are the constant properties of a device, as its driver reports them.
type properties struct {
	index     int
	about     cuda.Device
	version   int  // the newest of CUDA to report to guests: 1000*major + 10*minor
	byDevice  bool // the device itself can hold streams
	shareable bool // memory can be exported to other processes
}

var (
	_ accel.Device  = (*Device)(nil)
	_ accel.Context = (*Context)(nil)
)

// Open loads the driver and opens a device.
func Open(c Config) (*Device, error) {
	if c.Clock == nil {
		return nil, errors.New("open NVIDIA device: Config.Clock is not set")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.giveUp() // NVIDIA's driver never grants a range that it finds mapped when it starts
	began := c.Clock()
	all, err := List(c.Library)
	c.Log.Debug("driver started", "took", time.Duration(c.Clock()-began))
	c.reserve()
	if err != nil {
		return nil, err
	}
	chosen, err := listing.Choose(all, c.Device)
	if err != nil {
		return nil, err
	}
	d := &Device{config: c, properties: properties{index: chosen.Index, version: chosen.Version}, clock: c.Clock, log: c.Log, contexts: map[*Context]struct{}{}}
	if d.about, err = driver.Describe(d.index); err != nil {
		return nil, fmt.Errorf("NVIDIA device %d: %w", d.index, err)
	}
	if c.Printed != nil {
		if err := d.text.listen(c.Printed); err != nil {
			return nil, fmt.Errorf("open the output of kernels: %w", err)
		}
	}
	d.changed.L = &d.mu
	d.close = sync.OnceValue(d.shut)
	a := &d.about.Attributes
	d.byDevice = a[cuda.AttributeCanUse64BitStreamMemOps] != 0 && driver.Has("cuStreamWaitValue32_v2")
	if a[cuda.AttributeHostRegisterSupported] != 0 && a[cuda.AttributeUnifiedAddressing] != 0 && a[cuda.AttributeCanUseHostPointerForRegisteredMem] != 0 {
		if d.pinned = c.Shared; c.ArenaBase != 0 {
			d.pinned = c.Arena
		}
	}
	d.store = plain{}
	if a[cuda.AttributeVirtualMemoryManagementSupported] != 0 && c.DeviceBytes != 0 {
		d.store = newMapped(&c, d.index, d.countAllocation)
		if d.shareable = a[cuda.AttributeHandleTypePOSIXFileDescriptorSupported] != 0; d.shareable {
			driver.MakeShareable()
		}
	}
	if c.Swap != nil {
		if err := d.startSwapping(); err != nil {
			d.text.close()
			return nil, err
		}
	}
	d.watchdog.init(d)
	d.segments.dev = d
	d.reaper.init()
	return d, nil
}

// giveUp unmaps the reserved addresses of device memory.
func (c *Config) giveUp() {
	if c.Reserved {
		unix.Syscall(unix.SYS_MUNMAP, uintptr(c.DeviceBase), uintptr(c.DeviceBytes), 0)
	}
}

// reserve reserves the addresses of device memory again, unless they are in use by now.
func (c *Config) reserve() {
	if !c.Reserved {
		return
	}
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(c.DeviceBase), uintptr(c.DeviceBytes), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	c.Reserved = errno == 0
}

// List returns the available devices.
func List(library string) ([]listing.Device, error) {
	if err := driver.Load(library); err != nil {
		return nil, err
	}
	version, err := driver.Version()
	if err != nil {
		return nil, err
	}
	n, err := driver.Count()
	if err != nil {
		return nil, err
	}
	all := make([]listing.Device, n)
	for i := range all {
		d, err := driver.Describe(i)
		if err != nil {
			return nil, fmt.Errorf("NVIDIA device %d: %w", i, err)
		}
		a := &d.Attributes
		all[i] = listing.Device{
			Index: i, Name: d.Name, UUID: d.UUID.String(), Memory: d.TotalMem, Version: version,
			Capability: fmt.Sprintf("%d.%d", a[cuda.AttributeComputeCapabilityMajor], a[cuda.AttributeComputeCapabilityMinor]),
			Units:      int(a[cuda.AttributeMultiprocessorCount]), Clock: int(a[cuda.AttributeClockRate]),
			Maps: a[cuda.AttributeVirtualMemoryManagementSupported] != 0,
		}
	}
	return all, nil
}

// NewContext creates a context. It blocks while the driver creates it.
func (d *Device) NewContext(flags uint32) (accel.Context, cuda.Result) {
	if flags&^flagsMask != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	if c := d.takeSpare(flags); c != nil {
		return c, cuda.Success
	}
	c, r := d.makeContext(flags)
	if r != cuda.Success {
		return nil, r
	}
	return c, cuda.Success
}

func (d *Device) makeContext(flags uint32) (*Context, cuda.Result) {
	if d.aborted.Load() {
		return nil, cuda.ErrorDeinitialized
	}
	c, r := newContext(d, flags)
	if r != cuda.Success {
		return nil, r
	}
	d.mu.Lock()
	d.contexts[c] = struct{}{}
	d.mu.Unlock()
	return c, cuda.Success
}

// Queued returns the number of operations that have not ended, plus the waits for them.
func (d *Device) Queued() int { return int(d.queued.Load()) }

// Abort makes all later submissions fail. Submitted work runs on, until the process ends at the latest, and is charged
// until then.
func (d *Device) Abort() {
	d.aborted.Store(true)
	d.hurrySwapping()
	d.mu.Lock()
	for c := range d.contexts {
		c.Fail(cuda.ErrorContextIsDestroyed)
		c.letGo()
	}
	d.changed.Broadcast()
	d.mu.Unlock()
	for _, p := range d.watchdog.kernels() {
		if p.runs() {
			d.watchdog.chargeSoFar(p, false)
		}
	}
}

// LimitKernels changes the time limit of kernels.
func (d *Device) LimitKernels(limit time.Duration) { d.watchdog.setLimit(limit) }

// Close destroys all contexts and waits until that is complete. No other call may be in progress.
func (d *Device) Close() error { return d.close() }

func (d *Device) shut() error {
	frame.DestroyAll(&d.mu, d.contexts)()
	d.watchdog.stop()
	d.reaper.stop()
	d.stopSwapping()
	d.store.close()
	d.text.close()
	return nil
}
