package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/libvirt"
)

// machines returns the machines of the configured libvirt connections, as reported by pegasus-libvirt, which
// is installed beside this program; nil if the configuration has none.
func machines(c configs.Daemon, log *slog.Logger) *machineWatcher {
	if c.Regions == "" || len(c.Libvirt) == 0 {
		return nil
	}
	program := "pegasus-libvirt"
	if self, err := os.Executable(); err == nil {
		program = filepath.Join(filepath.Dir(self), program)
	}
	return &machineWatcher{from: libvirt.Machines{
		URIs: c.Libvirt, Log: log,
		Command: func(uri string) []string {
			return []string{program, "watch", "--connect", uri, "--regions", c.Regions}
		},
	}}
}

// machineWatcher passes on the reports about machines, and records which of them are off.
type machineWatcher struct {
	from hypervisor.Machines

	mu  sync.Mutex
	off map[string]bool // by name, of all machines ever reported
}

func (o *machineWatcher) Watch(ctx context.Context, notify func([]hypervisor.Machine)) {
	o.from.Watch(ctx, func(all []hypervisor.Machine) {
		o.note(all)
		notify(all)
	})
}

// note records a report. A machine that is missing from it does not exist any more.
func (o *machineWatcher) note(all []hypervisor.Machine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := map[string]bool{}
	for name := range o.off {
		next[name] = true
	}
	for _, m := range all {
		next[m.Domain] = m.State == hypervisor.MachineOff
	}
	o.off = next
}

// isOff reports whether a machine is off by the last report.
func (o *machineWatcher) isOff(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.off[name]
}
