package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"pegasus/guest/kvm"
)

// Where the agent of a machine listens, which libcuda.so.1 knows, too; and where it
// mounts what the machine shares with the host.
const (
	agentSocket = "/run/pegasus/guest.sock"
	agentDir    = "/run/pegasus/region"
)

// agent serves the machine until it is told to end.
func agent(errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewTextHandler(errs, nil))
	if err := (kvm.Agent{Socket: agentSocket, Dir: agentDir, Log: log}).Run(ctx); err != nil {
		fmt.Fprintln(errs, "pegasus-guest agent:", err)
		return 1
	}
	return 0
}
