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
	"pegasus/guest/agent"
	"pegasus/guest/kvm"
	"pegasus/guest/setup"
)

// serve serves the machine until it is told to end.
func serve(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("pegasus-guest agent", flag.ContinueOnError)
	flags.SetOutput(errs)
	group := flags.String("group", "", "let only members of `group` be served, where systemd doesn't make the socket")
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
	if err := (agent.Agent{Machine: kvm.Machine{Dir: setup.RegionDir}, Socket: setup.Socket, Group: *group, Dir: setup.RegionDir, Release: control.Release(), Log: log}).Run(ctx); err != nil {
		fmt.Fprintln(errs, "pegasus-guest agent:", err)
		return 1
	}
	return 0
}
