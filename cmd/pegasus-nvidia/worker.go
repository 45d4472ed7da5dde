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

// device is an NVIDIA device with its entries on two shared pages: on the accelerator's, which all of its
// workers share, the memory of each worker, and on the domain's, for how long it held the engines. The driver
// schedules the engines themselves.
type device struct {
	*nvidia.Device
	memory  *engine.Memory
	engines *engine.Engines
	worker  *engine.Worker
	ledger  *engine.Ledger // nil: no memory leaves the device
	domain  string
}

// opener opens devices; printed is the read end of this process's standard output, or nil.
type opener struct{ printed *os.File }

// catch replaces this process's standard output, to which the driver writes the output of kernels, by a pipe
// that the worker can read.
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

// open opens the accelerator of a job, in this worker process. The worker keeps ownership of the files.
func (o opener) open(j worker.Job, hardware []*os.File, p worker.AddressLayout, log *slog.Logger) (accel.Device, error) {
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
	d.SetShare(accel.Share(j.Share))
	quota := d.quota(p.Quota)
	var swap *nvidia.Swap
	if d.memory.Swap() != 0 {
		if d.ledger, err = engine.NewLedger(d.worker); err != nil {
			d.shut()
			return nil, fmt.Errorf("swap: %w", err)
		}
		quota, swap = p.Quota, &nvidia.Swap{Ledger: d.ledger, Moved: p.Swapped}
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

// quota returns a function that reserves memory of both the domain and the accelerator, and reports whether
// both have enough; a negative delta releases it.
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

// tokens are the page's counters of the classes' time.
var tokens = [accel.NumClasses]engine.Token{
	accel.Compute: engine.Compute, accel.CopyIn: engine.CopyIn, accel.CopyOut: engine.CopyOut, accel.CopyDevice: engine.Compute,
}

func (d *device) used(c accel.Class, ns int64) { d.worker.Charge(tokens[c], ns) }

func (d *device) executes(c accel.Class, since int64) { d.worker.Executes(tokens[c], since) }

// Capabilities adds Coordination to the driver's groups.
func (d *device) Capabilities() accel.Capabilities {
	all := d.Device.Capabilities()
	all.Coordination = d
	return all
}

// SetShare changes the domain's memory guarantee and priority.
func (d *device) SetShare(s accel.Share) {
	d.worker.SetShare(engine.DomainNumber(d.domain), s.Guarantee, s.Priority)
}

// ReserveSegments sets the device memory that the worker's domain has in common, and reports whether there was
// room.
func (d *device) ReserveSegments(bytes uint64) bool { return d.worker.ReserveCommons(bytes) }

// MemoryFree returns how much this process may still allocate, if its domain's quota allows it.
func (d *device) MemoryFree() uint64 { return uint64(max(d.worker.Room(), 0)) }

// TrySpin reserves one of the host's seats for spinning threads and reports whether one was free; EndSpin
// releases it.
func (d *device) TrySpin() bool { return d.worker.TrySpin() }

// EndSpin releases a seat.
func (d *device) EndSpin() { d.worker.EndSpin() }

// Saturated reports whether every core of the host computes: never for this device.
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
