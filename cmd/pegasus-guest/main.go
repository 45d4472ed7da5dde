// Pegasus-guest is for use inside a guest: in a virtual machine it is the agent that CUDA programs need; it
// installs itself and the library there; and it reports whether a program here would find Pegasus, and if
// not, why.
//
//	pegasus-guest install    set a virtual machine up, as its root
//	pegasus-guest agent      serve the CUDA programs of a virtual machine, as its root
//	pegasus-guest doctor     check and explain; exit status 1 if a program would fail
//	pegasus-guest smi        show this guest's use of its accelerator, as nvidia-smi does
//	pegasus-guest version    print the version
package main

import (
	"fmt"
	"io"
	"os"

	"pegasus/backend/control"
	"pegasus/guest/xen"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `usage: pegasus-guest COMMAND [ARGUMENTS]

  install   installs the library and the agent in this virtual machine, as root (--help: more)
  agent     serves the CUDA programs of a virtual machine; to be started at boot, as root (--group)
  doctor    checks whether a CUDA program here would find Pegasus (--json)
  smi       shows name, memory, utilisation and processes, as nvidia-smi does (-L, --query-gpu)
  version   prints the version
`

func run(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(errs, usage)
		return 2
	}
	switch args[0] {
	case "install":
		return install(args[1:], out, errs)
	case "doctor":
		return doctor(args[1:], out, errs)
	case "smi":
		return showDevice(args[1:], out, errs)
	case "agent":
		return serve(args[1:], errs)
	case xen.HoldCommand: // started by the agent
		xen.Hold()
	}
	if len(args) > 1 {
		fmt.Fprint(errs, usage)
		return 2
	}
	switch args[0] {
	case "version", "--version":
		fmt.Fprintln(out, "pegasus-guest", control.Release())
		return 0
	case "help", "-h", "--help":
		fmt.Fprint(out, usage)
		return 0
	default:
		fmt.Fprintf(errs, "pegasus-guest: there is no command %q\n%s", args[0], usage)
		return 2
	}
}
