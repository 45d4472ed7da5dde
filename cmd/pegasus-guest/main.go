// Pegasus-guest is for use inside a guest: in a virtual machine it is the agent that CUDA programs need; it
// installs itself and the library there; and it reports whether a program here would find Pegasus, and if
// not, why.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"pegasus/backend/control"
	"pegasus/guest/xen"
	"pegasus/internal/usage"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// command is a command with its work, which returns the exit status.
type command struct {
	usage.Command
	do func() int
}

// commands returns the commands; their flags set values of their own.
func commands(out, errs io.Writer) []command {
	return []command{install(out, errs), serve(errs), doctor(out), showDevice(out, errs), {
		Command: usage.Command{Name: "version", Text: "Prints the version.", Flags: newFlags("version")},
		do: func() int {
			fmt.Fprintln(out, "pegasus-guest", control.Release())
			return 0
		},
	}}
}

func newFlags(name string) *flag.FlagSet {
	return flag.NewFlagSet("pegasus-guest "+name, flag.ContinueOnError)
}

func commandLine(all []command) *usage.Program {
	p := &usage.Program{
		Name: "pegasus-guest", Short: "connects CUDA programs of a virtual machine to the accelerators of its host", See: "pegasus(1) of the host",
		Text: "CUDA programs of a virtual machine whose host runs Pegasus need a library and an agent. This program is the agent, and it has the library in it.\n\n" +
			"The exit status is 0 if the command did its work, 1 if it failed, 2 if the command line is wrong.",
	}
	for _, c := range all {
		p.Commands = append(p.Commands, c.Command)
	}
	return p
}

func run(args []string, out, errs io.Writer) int {
	all := commands(out, errs)
	program := commandLine(all)
	if len(args) > 0 {
		switch args[0] {
		case xen.HoldCommand: // started by the agent
			xen.Hold()
		case "-version", "--version":
			args = append([]string{"version"}, args[1:]...)
		}
	}
	chosen, code := program.Choose(args, out, errs)
	if chosen == nil {
		return code
	}
	if code := program.Parse(chosen, args[1:], 0, out, errs); code >= 0 {
		return code
	}
	i := slices.IndexFunc(all, func(c command) bool { return c.Name == chosen.Name })
	return all[i].do()
}
