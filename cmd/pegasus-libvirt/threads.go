//go:build cgo && libvirt_dlopen

package main

import (
	"context"
	"fmt"
	"os"

	report "pegasus/hypervisor/libvirt"
)

// newThreads returns the vCPU threads of the machines of a libvirt connection, as reported by their QEMUs.
func newThreads(uri string, changed func()) *report.Threads {
	return &report.Threads{
		Changed: changed,
		Log:     func(line string) { fmt.Fprintln(os.Stderr, line) },
		Query: func(ctx context.Context, machine string) (pid int, vcpus []int, err error) {
			if vcpus, err = report.QueryThreads(ctx, report.SocketOf(uri), machine); err == nil {
				pid, err = report.ProcessOf(machine, vcpus)
			}
			return pid, vcpus, err
		},
	}
}
