package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/libvirt"
)

// machines are those of the libvirts of a configuration, as pegasus-libvirt, which is
// installed beside us, tells of them; nil where there are to be none.
func machines(c configs.Daemon, log *slog.Logger) hypervisor.Machines {
	if c.Regions == "" || len(c.Libvirt) == 0 {
		return nil
	}
	program := "pegasus-libvirt"
	if self, err := os.Executable(); err == nil {
		program = filepath.Join(filepath.Dir(self), program)
	}
	return libvirt.Machines{
		URIs: c.Libvirt, Log: log,
		Command: func(uri string) []string {
			return []string{program, "watch", "--connect", uri, "--regions", c.Regions}
		},
	}
}
