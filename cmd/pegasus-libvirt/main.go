//go:build cgo && libvirt_dlopen

// Pegasus-libvirt accesses libvirt for the daemon and the pegasus command. It is a separate program because
// it links libvirt's C library, which no other program needs: where it isn't installed only this one fails.
//
//	pegasus-libvirt watch [--connect URI] [--regions DIR] [--patience TIME]
//	pegasus-libvirt list [--connect URI] [--regions DIR]
//	pegasus-libvirt show [--connect URI] MACHINE
//	pegasus-libvirt define [--connect URI] <DEFINITION
//	pegasus-libvirt plug [--connect URI] MACHINE <DEVICE
//	pegasus-libvirt unplug [--connect URI] MACHINE ALIAS
//
// Watch prints a line of JSON on every change: all machines with a region in the directory, by their
// definitions, or why libvirt is unavailable. It ends when its standard input ends, and when libvirtd
// doesn't answer within TIME. List prints which machines have regions, now or from their next start on.
// Show prints libvirt's data of a machine, as JSON. Define replaces a machine's definition by the one on
// its standard input, and prints the machine's data as show does. Plug adds a device to a running machine,
// and unplug removes one from it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: pegasus-libvirt watch|list|show|define|plug|unplug [--connect URI] [--regions DIR] [MACHINE [ALIAS]]")

func run(args []string, in io.Reader, out *json.Encoder) error {
	f := flag.NewFlagSet("pegasus-libvirt", flag.ContinueOnError)
	uri := f.String("connect", "qemu:///system", "libvirt's `uri`")
	regions := f.String("regions", "/dev/shm/pegasus", "`directory` of the machines' shared memory")
	patience := f.Duration("patience", patience, "how much `time` libvirtd may take to answer a watcher")
	if len(args) == 0 || f.Parse(args[1:]) != nil {
		return errUsage
	}
	switch command := args[0]; {
	case command == "watch" && f.NArg() == 0:
		go func() {
			io.Copy(io.Discard, in)
			os.Exit(0)
		}()
		return watch(*uri, *regions, *patience, out)
	case command == "list" && f.NArg() == 0:
		return list(*uri, *regions, out)
	case command == "show" && f.NArg() == 1:
		return show(*uri, f.Arg(0), out)
	case command == "define" && f.NArg() == 0:
		return define(*uri, in, out)
	case command == "plug" && f.NArg() == 1:
		return plug(*uri, f.Arg(0), in, out)
	case command == "unplug" && f.NArg() == 2:
		return unplug(*uri, f.Arg(0), f.Arg(1), out)
	}
	return errUsage
}
