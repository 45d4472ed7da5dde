//go:build cgo

// Pegasus-nvidia accesses NVIDIA's devices for the daemon and the pegasus command. It is a separate program
// because the driver is a C library, which no other program needs: where it isn't installed only this one
// fails.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"pegasus/accel/nvidia"
	"pegasus/backend/worker"
	"pegasus/internal/timerslack"
	"pegasus/internal/usage"
)

func main() {
	timerslack.RelaxMonitor() // without the capability, the process only wakes more often
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
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct{ driver, device string }

func commandLine(o *options) *usage.Program {
	flags := func(name string) *flag.FlagSet {
		f := flag.NewFlagSet("pegasus-nvidia "+name, flag.ContinueOnError)
		f.StringVar(&o.driver, "library", "", "the driver, a `file` (default as the system finds libcuda.so.1)")
		return f
	}
	forOne := func(name string) *flag.FlagSet {
		f := flags(name)
		f.StringVar(&o.device, "device", "", "its `index` or UUID (default the first)")
		return f
	}
	return &usage.Program{
		Name: "pegasus-nvidia", Short: "accesses NVIDIA's devices for Pegasus", See: "pegasus(1), pegasusd(8)",
		Text: "The daemon and the pegasus command run this program; only this one links NVIDIA's driver, a C library.\n\n" +
			"The daemon starts \"pegasus-nvidia worker\" for each guest process of an accelerator of type \"nvidia\". This command has no other use.\n\n" +
			"The exit status is 0 if the command did its work, 1 if it failed, with the reason on standard error, 2 if the command line is wrong.",
		Commands: []usage.Command{
			{Name: "list", Args: "[--library FILE]", Text: "Prints the driver's devices, as JSON.", Flags: flags("list")},
			{Name: "switching", Args: "[--library FILE] [--device INDEX]", Flags: forOne("switching"),
				Text: "Measures on a device, which no other process may be using, the cost of changing between two processes, and the memory that each of them occupies."},
		},
	}
}

func run(args []string, out, errs io.Writer) int {
	var o options
	program := commandLine(&o)
	part := len(args) > 0 && args[0] == "switching-part" // child of switching
	if part {
		args = append([]string{"switching"}, args[1:]...)
	}
	command, code := program.Choose(args, out, errs)
	if command == nil {
		return code
	}
	if code := program.Parse(command, args[1:], 0, out, errs); code >= 0 {
		return code
	}
	var err error
	switch {
	case part:
		err = switchingPart(o.driver, o.device, os.Stdin, out)
	case command.Name == "switching":
		err = switching(o.driver, o.device, out)
	default:
		err = printList(o.driver, out)
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

func printList(library string, out io.Writer) error {
	all, err := nvidia.List(library)
	if err != nil {
		return err
	}
	nvidia.Watch(library, all)
	return json.NewEncoder(out).Encode(all)
}
