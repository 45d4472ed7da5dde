package main

import (
	"fmt"
	"io"

	"pegasus/frontend"
	"pegasus/guest/smi"
	"pegasus/internal/usage"
)

// showDevice prints this guest's use of its accelerator.
func showDevice(out, errs io.Writer) command {
	var o smi.Options
	flags := newFlags("smi")
	flags.BoolVar(&o.List, "L", false, "list the devices")
	flags.StringVar(&o.Query, "query-gpu", "", "print these `fields`, separated by commas")
	flags.StringVar(&o.Format, "format", "", "the `format` of --query-gpu: csv, the default, with or without noheader and nounits")
	return command{
		usage.Command{
			Name: "smi", Args: "[-L] [--query-gpu FIELDS [--format FORMAT]]", Flags: flags,
			Text: "Shows name, memory, utilisation and processes of this guest's accelerator, as nvidia-smi does.",
		},
		func() int {
			socket := frontend.Socket()
			if socket == "" {
				fmt.Fprintln(errs, "pegasus-guest smi: no agent at "+frontend.AgentSocket+", and PEGASUS_SOCKET isn't set; see pegasus-guest doctor")
				return 1
			}
			if err := smi.Show(out, errs, socket, o); err != nil {
				fmt.Fprintf(errs, "pegasus-guest smi: %v\n", err)
				return 1
			}
			return 0
		},
	}
}
