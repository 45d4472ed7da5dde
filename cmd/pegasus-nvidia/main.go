//go:build cgo

// Pegasus-nvidia is what the daemon and the pegasus command know of NVIDIA's devices
// by. It is a program of its own because the driver is a C library: nobody else
// needs that, and where it isn't installed only this one says so.
//
//	pegasus-nvidia list [--library FILE]
//	pegasus-nvidia switching [--library FILE] [--device INDEX|UUID]
//	pegasus-nvidia worker
//
// List prints as JSON which devices the driver has, switching what changing between two processes costs
// on one of them, where nobody else uses it, and how much memory each takes for itself. Worker is what the daemon starts
// for each guest process of an accelerator of type "nvidia"; nobody else can use it.
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
		// A stream that waits holds up others that the driver has put behind it, by default from the ninth on. It reads
		// this when it is loaded. Each makes a context slower to create.
		if _, set := os.LookupEnv("CUDA_DEVICE_MAX_CONNECTIONS"); !set {
			os.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
		}
		printed, err := catch()
		if err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err) // without what kernels print
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
	case "switching-part": // of the one above
		return switchingPart(*library, device, os.Stdin, out)
	}
	return errUsage
}
