package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"pegasus/backend/control"
	"pegasus/guest/kvm"
	"pegasus/guest/setup"
)

// agent serves the machine until it is told to end.
func agent(errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewTextHandler(errs, nil))
	if err := (kvm.Agent{Socket: setup.Socket, Dir: setup.RegionDir, Release: control.Release(), Log: log}).Run(ctx); err != nil {
		fmt.Fprintln(errs, "pegasus-guest agent:", err)
		return 1
	}
	return 0
}
