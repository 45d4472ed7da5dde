// Demo shows two virtual machines share an accelerator by their credits; `make vm-demo`
// runs it, as root. The exit status is 1 if that couldn't be shown.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"pegasus/test/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := vm.Demonstrate(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vm-demo:", err)
		os.Exit(1)
	}
}
