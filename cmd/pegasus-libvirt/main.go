//go:build cgo && libvirt_dlopen

// Pegasus-libvirt accesses libvirt for the daemon and the pegasus command. It is a separate program because
// it links libvirt's C library, which no other program needs: where it isn't installed only this one fails.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"pegasus/internal/usage"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// options are the flags of all commands.
type options struct {
	uri, regions string
	patience     time.Duration
}

func commandLine(o *options) *usage.Program {
	f := flag.NewFlagSet("pegasus-libvirt", flag.ContinueOnError)
	f.StringVar(&o.uri, "connect", "qemu:///system", "libvirt's `uri`")
	f.StringVar(&o.regions, "regions", "/dev/shm/pegasus", "`directory` of the machines' shared memory")
	f.DurationVar(&o.patience, "patience", patience, "how much `time` libvirtd may take to answer a watcher")
	return &usage.Program{
		Name: "pegasus-libvirt", Short: "accesses libvirt for Pegasus", Flags: f, See: "pegasus(1), pegasusd(8)",
		Text: "The daemon and the pegasus command run this program; only this one links libvirt's C library. It prints JSON.\n\n" +
			"The exit status is 0 if the command did its work, 1 if it failed, with the reason on standard error, 2 if the command line is wrong.",
		Commands: []usage.Command{
			{Name: "watch", Args: "[--connect URI] [--regions DIRECTORY] [--patience TIME]",
				Text: "Prints a line on every change: all machines with a region in the directory, by their definitions, or why libvirt is unavailable. " +
					"Ends when its standard input ends, and when libvirtd does not answer within TIME."},
			{Name: "list", Args: "[--connect URI] [--regions DIRECTORY]", Text: "Prints which machines have regions, now or from their next start on."},
			{Name: "names", Args: "[--connect URI]", Text: "Prints the names of all machines that libvirt keeps when they end."},
			{Name: "show", Args: "[--connect URI] MACHINE", Text: "Prints libvirt's data of a machine."},
			{Name: "define", Args: "[--connect URI] <DEFINITION", Text: "Replaces a machine's definition by the one on standard input, and prints the machine's data as show does."},
			{Name: "plug", Args: "[--connect URI] MACHINE <DEVICE", Text: "Adds the device on standard input to a running machine."},
			{Name: "unplug", Args: "[--connect URI] MACHINE ALIAS", Text: "Removes a device from a running machine."},
		},
	}
}

var operands = map[string]int{"show": 1, "plug": 1, "unplug": 2}

func run(args []string, in io.Reader, out, errs io.Writer) int {
	var o options
	program := commandLine(&o)
	command, code := program.Choose(args, out, errs)
	if command == nil {
		return code
	}
	if code := program.Parse(command, args[1:], operands[command.Name], out, errs); code >= 0 {
		return code
	}
	if err := o.do(command.Name, program.Flags.Args(), in, json.NewEncoder(out)); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

func (o *options) do(command string, operands []string, in io.Reader, out *json.Encoder) error {
	switch command {
	case "watch":
		go func() {
			io.Copy(io.Discard, in)
			os.Exit(0)
		}()
		return watch(o.uri, o.regions, o.patience, out)
	case "list":
		return list(o.uri, o.regions, out)
	case "names":
		return names(o.uri, out)
	case "show":
		return show(o.uri, operands[0], out)
	case "define":
		return define(o.uri, in, out)
	case "plug":
		return plug(o.uri, operands[0], in, out)
	default:
		return unplug(o.uri, operands[0], operands[1], out)
	}
}
