// Package copier is the smallest accelerator: it copies and fills memory, and executes no kernels. It is the worked
// example of docs/adding-an-accelerator.md, and no program opens it.
//
// Submit executes a piece of work itself, in the caller's goroutine, unless earlier work that the piece depends on is
// still pending, which only a host function can cause. Such a piece is executed when the last of these ends.
//
// One mutex of the device guards all state. It is not held while work is executed or a callback runs.
//
// Callers: the tests of package accel. Trust boundary: the worker passes on a guest's addresses, sizes and handles, so
// Submit checks all of them.
package copier

import (
	"sync"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// Device is an open accelerator.
type Device struct {
	bytes uint64 // of memory
	quota func(delta int64) bool

	mu       sync.Mutex
	contexts map[*context]struct{}
	blocks   map[uint64]*block // allocations, by address
	next     uint64            // address of the next one
	used     uint64            // bytes
	queued   int               // pieces of work that have not ended
}

// Open returns a device with so many bytes of memory. quota is called before device memory is allocated (delta > 0;
// false refuses it) and after it was freed (delta < 0); nil allows everything.
func Open(bytes uint64, quota func(delta int64) bool) *Device {
	if quota == nil {
		quota = func(int64) bool { return true }
	}
	return &Device{bytes: bytes, quota: quota, contexts: map[*context]struct{}{}, blocks: map[uint64]*block{}, next: 1 << 40}
}

// Snapshot implements accel.Device.
func (d *Device) Snapshot() cuda.Device { return cuda.Device{Name: "copier", TotalMem: d.bytes} }

// Inspect implements accel.Device: no image can be loaded.
func (d *Device) Inspect([]byte) (*cuda.ModuleLayout, string, cuda.Result) {
	return nil, "this accelerator executes no kernels", cuda.ErrorNotSupported
}

// Capabilities implements accel.Device. All groups but Control are nil.
func (d *Device) Capabilities() accel.Capabilities { return accel.Capabilities{Control: d} }

// NewContext implements accel.Device.
func (d *Device) NewContext(uint32) (accel.Context, cuda.Result) {
	c := &context{dev: d}
	c.legacy = &stream{ctx: c, blocking: true, legacy: true}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.contexts[c] = struct{}{}
	return c, cuda.Success
}

// Close implements accel.Device.
func (d *Device) Close() error {
	var gone sync.WaitGroup
	for _, c := range d.all() {
		gone.Add(1)
		c.Destroy(gone.Done)
	}
	gone.Wait()
	return nil
}

// all returns the contexts.
func (d *Device) all() (all []*context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.contexts {
		all = append(all, c)
	}
	return all
}

// Queued implements accel.Controller.
func (d *Device) Queued() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queued
}

// Abort implements accel.Controller.
func (d *Device) Abort() {
	for _, c := range d.all() {
		c.cancel()
	}
}

// LimitKernels implements accel.Controller: there are no kernels.
func (d *Device) LimitKernels(time.Duration) {}
