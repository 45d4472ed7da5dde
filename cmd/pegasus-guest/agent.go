package main

import (
	"context"
	"errors"
	"flag"
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
)

// serve serves the machine until it receives a signal to end.
func serve(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("pegasus-guest agent", flag.ContinueOnError)
	flags.SetOutput(errs)
	group := flags.String("group", "", "let only members of `group` be served, where systemd doesn't make the socket")
	memory := uint64(xen.DefaultMemory)
	flags.Func("memory", "in a domU of Xen: all its CUDA processes together share at most so much with the host: a `SIZE` (default 64MiB)", func(s string) error {
		size, err := configs.ParseSize(s)
		if err == nil && (size < xen.LeastMemory || size > xen.MostMemory) {
			err = fmt.Errorf("%s: want %s to %s", size, configs.Size(xen.LeastMemory), configs.Size(xen.MostMemory))
		}
		memory = uint64(size)
		return err
	})
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errs, "pegasus-guest agent: there is no operand %q\n", flags.Arg(0))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewTextHandler(errs, nil))
	if err := (agent.Agent{Machine: machineHere(memory), Socket: setup.Socket, Group: *group, Dir: setup.RegionDir, Release: control.Release(), Log: log}).Run(ctx); err != nil {
		fmt.Fprintln(errs, "pegasus-guest agent:", err)
		return 1
	}
	return 0
}

// machineHere returns the kind of this machine.
func machineHere(memory uint64) agent.Machine {
	if xen.Here("/") {
		return &xen.Machine{Memory: memory}
	}
	return kvm.Machine{Dir: setup.RegionDir}
}
