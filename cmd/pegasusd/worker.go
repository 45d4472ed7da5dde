package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"pegasus/accel"
	"pegasus/accel/ptx"
	"pegasus/accel/soft"
	"pegasus/accel/soft/engine"
	"pegasus/backend/worker"
)

// work runs the worker process.
func work() int {
	lines := newSink(os.Stderr)
	defer lines.close()
	return worker.Main(worker.Config{Open: openDevice, Log: lines})
}

// openDevice opens the accelerator of a job, in this worker process. The worker keeps ownership of the files.
func openDevice(j worker.Job, hardware []*os.File, p worker.AddressLayout, log *slog.Logger) (accel.Device, error) {
	switch j.Accelerator.Type {
	case "soft":
		return openSoftDevice(j, hardware, p, log)
	default:
		return nil, fmt.Errorf("accelerator type %q: this build has none", j.Accelerator.Type)
	}
}

// softDevice is a software accelerator with the pages that it was opened on.
type softDevice struct {
	*soft.Device
	memory  *engine.Memory
	engines *engine.Engines
}

func openSoftDevice(j worker.Job, hardware []*os.File, p worker.AddressLayout, log *slog.Logger) (accel.Device, error) {
	memory, engines, err := engine.OpenPages(hardware)
	if err != nil {
		return nil, err
	}
	d, err := soft.Open(soft.Config{
		Name: j.Accelerator.Name, Domain: j.Domain, Cores: j.Accelerator.Cores, Memory: j.Accelerator.Memory,
		KernelTimeout: int64(j.Accelerator.KernelTimeout), OnTimeout: p.OnTimeout, OnFault: p.OnFault,
		RefusePTX: ptx.When(j.Accelerator.RefusePTX == "launch"),
		Shared:    memory, Engines: engines, DeviceBase: p.DeviceBase, DeviceBytes: p.DeviceBytes, Reserved: true,
		Arena: p.Arena, ArenaBase: p.ArenaBase, Quota: p.Quota, Turn: p.Turn, Log: log,
		Share: accel.Share(j.Share), Swapped: p.Swapped,
	})
	if err != nil {
		engines.Close()
		memory.Close()
		return nil, err
	}
	return &softDevice{Device: d, memory: memory, engines: engines}, nil
}

// Close closes the device and then the pages that it lies on.
func (d *softDevice) Close() error {
	return errors.Join(d.Device.Close(), d.engines.Close(), d.memory.Close())
}
