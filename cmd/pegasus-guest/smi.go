package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"pegasus/frontend"
	"pegasus/guest/smi"
)

// showDevice prints this guest's use of its accelerator.
func showDevice(args []string, out, errs io.Writer) int {
	var o smi.Options
	flags := flag.NewFlagSet("pegasus-guest smi", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&o.List, "L", false, "list the devices")
	flags.StringVar(&o.Query, "query-gpu", "", "print these `fields`, separated by commas")
	flags.StringVar(&o.Format, "format", "csv", "the `format` of --query-gpu: csv, with or without noheader and nounits")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errs, "pegasus-guest smi: there is no operand %q\n", flags.Arg(0))
		return 2
	}
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
}
