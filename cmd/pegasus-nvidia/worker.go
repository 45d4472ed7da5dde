//go:build cgo

package main

import (
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/nvidia"
	"pegasus/accel/soft/engine"
	"pegasus/backend/gate"
	"pegasus/backend/worker"
)

// device is an NVIDIA device with its seat on the page that all workers of the
// accelerator share, where is written down how much memory each has, and on that of its domain: for how long it held the engines. The driver takes care of the engines themselves.
type device struct {
	*nvidia.Device
	memory  *engine.Memory
	engines *engine.Engines
	worker  *engine.Worker
	ledger  *engine.Ledger // nil: no memory leaves the device
	domain  string
}

// opener opens devices; printed is the other end of this process's standard output, or nil.
type opener struct{ printed *os.File }

// catch makes this process's standard output, to which the driver writes what kernels print, one that can be read here.
func catch() (*os.File, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("catch what kernels print: %w", err)
	}
	defer unix.Close(ends[1])
	err := unix.Dup3(ends[1], 1, 0)
	if err == nil {
		err = unix.SetNonblock(ends[0], true)
	}
	if err != nil {
		unix.Close(ends[0])
		return nil, fmt.Errorf("catch what kernels print: %w", err)
	}
	return os.NewFile(uintptr(ends[0]), "printed"), nil
}

// open opens the accelerator of a job, in this worker process. The files stay the worker's.
func (o opener) open(j worker.Job, hardware []*os.File, p worker.Place, log *slog.Logger) (accel.Device, error) {
	if j.Accelerator.Type != "nvidia" {
		return nil, fmt.Errorf("accelerator type %q: this worker is for \"nvidia\"", j.Accelerator.Type)
	}
	d := &device{domain: j.Domain}
	var err error
	if d.memory, d.engines, err = engine.OpenPages(hardware); err != nil {
		return nil, err
	}
	if d.worker, err = d.memory.Register(d.engines, gate.Now); err != nil {
		d.engines.Close()
		d.memory.Close()
		return nil, err
	}
	d.SetShare(j.Share)
	quota := d.quota(p.Quota)
	var swap *nvidia.Swap
	if d.memory.Swap() != 0 {
		if d.ledger, err = engine.NewLedger(d.worker); err != nil {
			d.shut()
			return nil, fmt.Errorf("swap: %w", err)
		}
		quota, swap = p.Quota, &nvidia.Swap{Seat: d.ledger, Moved: p.Swapped}
	}
	d.Device, err = nvidia.Open(nvidia.Config{
		Library: j.Accelerator.Library, Device: j.Accelerator.Device, Memory: d.memory.Capacity(), Swap: swap,
		Context: j.Accelerator.Context, KernelTimeout: int64(j.Accelerator.KernelTimeout), OnTimeout: p.OnTimeout,
		DeviceBase: p.DeviceBase, DeviceBytes: p.DeviceBytes, Reserved: true,
		Arena: p.Arena, ArenaBase: p.ArenaBase, Shared: p.Shared,
		Quota: quota, Used: d.used, Executes: d.executes, Printed: o.printed, Clock: gate.Now, Log: log,
		Seats: d.worker, SpinTime: int64(j.SpinTime),
	})
	if err != nil {
		d.shut()
		return nil, err
	}
	return d, nil
}

// quota asks whether both the domain and the accelerator have so much.
func (d *device) quota(domain func(int64) bool) func(int64) bool {
	return func(delta int64) bool {
		if delta < 0 {
			d.worker.Unreserve(uint64(-delta))
			return domain(delta)
		}
		if !domain(delta) {
			return false
		}
		if d.worker.Reserve(uint64(delta)) {
			return true
		}
		domain(-delta)
		return false
	}
}

// tokens are those by which the page counts the classes' time.
var tokens = [accel.NumClasses]engine.Token{
	accel.Compute: engine.Compute, accel.CopyIn: engine.CopyIn, accel.CopyOut: engine.CopyOut, accel.CopyDevice: engine.Compute,
}

func (d *device) used(c accel.Class, ns int64) { d.worker.Charge(tokens[c], ns) }

func (d *device) executes(c accel.Class, since int64) { d.worker.Executes(tokens[c], since) }

// SetShare changes what the domain was promised of the memory.
func (d *device) SetShare(s worker.Share) {
	d.worker.SetShare(engine.DomainNumber(d.domain), s.Guarantee, s.Priority)
}

// ReserveCommons says how much device memory the worker's domain has of its own now.
func (d *device) ReserveCommons(bytes uint64) bool { return d.worker.ReserveCommons(bytes) }

// MemoryFree is how much this process may still allocate, if its domain's quota allows it.
func (d *device) MemoryFree() uint64 { return uint64(max(d.worker.Room(), 0)) }

// TrySpin asks for one of the host's seats for spinning threads; who got one gives it back with EndSpin.
func (d *device) TrySpin() bool { return d.worker.TrySpin() }

// EndSpin gives a seat back.
func (d *device) EndSpin() { d.worker.EndSpin() }

// Saturated says that every core of the host computes: here they don't.
func (d *device) Saturated() bool { return false }

// Close closes the device and then the pages.
func (d *device) Close() error {
	err := d.Device.Close()
	d.shut()
	return err
}

func (d *device) shut() {
	if d.ledger != nil {
		d.ledger.Close()
	}
	d.worker.Close()
	d.engines.Close()
	d.memory.Close()
}
