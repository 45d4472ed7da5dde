//go:build cgo && libvirt_dlopen

// Pegasus-libvirt is what the daemon knows of libvirt by. It is a program of its own
// because libvirt's C library is: nobody else needs that, and where it isn't installed
// only this one says so.
//
//	pegasus-libvirt watch [--connect URI] [--regions DIR]
//
// It prints a line of JSON whenever something changes: all machines whose definition
// has a region in the directory, or why libvirt can't be asked. It ends when its standard
// input does.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "pegasus-libvirt:", run(os.Args[1:]))
	os.Exit(1)
}

// run returns when it can't go on.
func run(args []string) error {
	f := flag.NewFlagSet("pegasus-libvirt", flag.ContinueOnError)
	uri := f.String("connect", "qemu:///system", "libvirt's `uri`")
	regions := f.String("regions", "/dev/shm/pegasus", "`directory` of the machines' shared memory")
	if len(args) == 0 || args[0] != "watch" || f.Parse(args[1:]) != nil || f.NArg() > 0 {
		return fmt.Errorf("usage: pegasus-libvirt watch [--connect URI] [--regions DIR]")
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return watch(*uri, *regions, json.NewEncoder(os.Stdout))
}
