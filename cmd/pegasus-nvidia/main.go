//go:build cgo

// Pegasus-nvidia accesses NVIDIA's devices for the daemon and the pegasus command. It is a separate program
// because the driver is a C library, which no other program needs: where it isn't installed only this one
// fails.
//
//	pegasus-nvidia list [--library FILE]
//	pegasus-nvidia switching [--library FILE] [--device INDEX|UUID]
//	pegasus-nvidia worker
//
// List prints the driver's devices as JSON; switching measures on one of them, which no other process may be
// using, the cost of changing between two processes, and the memory that each occupies. Worker is what the
// daemon starts for each guest process of an accelerator of type "nvidia"; it has no other use.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"pegasus/accel/nvidia"
	"pegasus/backend/worker"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "worker" {
		// A waiting stream blocks others that the driver has queued behind it, by default from the ninth on.
		// The driver reads this variable when it is loaded. Each connection makes a context slower to create.
		if _, set := os.LookupEnv("CUDA_DEVICE_MAX_CONNECTIONS"); !set {
			os.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
		}
		printed, err := catch()
		if err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err) // without the output of kernels
		}
		os.Exit(worker.Main(worker.Config{Open: opener{printed}.open, Driver: true}))
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: pegasus-nvidia list [--library FILE], or pegasus-nvidia switching [--library FILE] [--device INDEX|UUID]")

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("pegasus-nvidia", flag.ContinueOnError)
	library := f.String("library", "", "the driver, a `file` (default as the system finds libcuda.so.1)")
	device := ""
	if len(args) > 0 && args[0] != "list" {
		f.StringVar(&device, "device", "", "its `index` or UUID (default the first)")
	}
	if len(args) == 0 || f.Parse(args[1:]) != nil || f.NArg() != 0 {
		return errUsage
	}
	switch args[0] {
	case "list":
		all, err := nvidia.List(*library)
		if err != nil {
			return err
		}
		nvidia.Watch(*library, all)
		return json.NewEncoder(out).Encode(all)
	case "switching":
		return switching(*library, device, out)
	case "switching-part": // child of switching
		return switchingPart(*library, device, os.Stdin, out)
	}
	return errUsage
}
