package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/guest/agent"
	"pegasus/guest/kvm"
	"pegasus/guest/setup"
	"pegasus/guest/xen"
	"pegasus/internal/logs"
	"pegasus/internal/usage"
)

// serve serves the machine until it receives a signal to end.
func serve(errs io.Writer) command {
	flags := newFlags("agent")
	text := logs.Flag(flags, "info")
	group := flags.String("group", "", "let only members of `group` be served, where systemd doesn't make the socket")
	memory := uint64(xen.DefaultMemory)
	flags.Func("memory", "in a domU of Xen: the `size` of the memory that all its CUDA processes together share with the host, at most (default 64MiB)", func(s string) error {
		size, err := configs.ParseSize(s)
		if err == nil && (size < xen.LeastMemory || size > xen.MostMemory) {
			err = fmt.Errorf("%s: want %s to %s", size, configs.Size(xen.LeastMemory), configs.Size(xen.MostMemory))
		}
		memory = uint64(size)
		return err
	})
	return command{
		usage.Command{
			Name: "agent", Args: "[--group GROUP] [--memory SIZE] [--log-level LEVEL]", Flags: flags,
			Text: "Serves the CUDA programs of a virtual machine. The machine starts it at boot, as root.",
		},
		func() int {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			var level slog.LevelVar
			level.UnmarshalText([]byte(*text))
			logs.SwitchOnSignal(ctx, &level)
			log := logs.New(errs, &level)
			if err := (agent.Agent{Machine: machineHere(memory), Socket: setup.Socket, Group: *group, Dir: setup.RegionDir, Release: control.Release(), Log: log}).Run(ctx); err != nil {
				fmt.Fprintln(errs, "pegasus-guest agent:", err)
				return 1
			}
			return 0
		},
	}
}

// machineHere returns the kind of this machine.
func machineHere(memory uint64) agent.Machine {
	if xen.Here("/") {
		return &xen.Machine{Memory: memory}
	}
	return kvm.Machine{Dir: setup.RegionDir}
}
