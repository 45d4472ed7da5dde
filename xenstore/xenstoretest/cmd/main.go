// Command cmd runs the cases of package xenstoretest against the XenStore of this machine,
// inside domain 0 or another domain of a Xen host: over the server's socket and through the
// kernel's device, whichever there are. Built without cgo it is one file that needs nothing else:
//
//	CGO_ENABLED=0 go build -o xenstore-conformance ./xenstore/xenstoretest/cmd
//
// It prints a line for each case, which begins with "ok", "FAIL" or "none" for one that isn't for this machine, and
// at the end a summary; it exits with 1 if a case failed, and with 2 if none could be run.
//
//	--socket PATH   try this socket
//	--device PATH   try this device
//	--dom N         the domain that runs it; by default the value of "domid" in the store
//	--base PATH     a path that no other program uses; it is removed
//	--requests N    requests of the largest case; fewer where everything is slow
//	--run REGEXP    run only the cases with matching names
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
	"pegasus/xenstore/xenstoretest"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// way is a link to the server.
type way struct {
	name, path string
	dial       xenstore.Dialer
	device     bool
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("xenstore-conformance", flag.ContinueOnError)
	flags.SetOutput(errs)
	socket, device := flags.String("socket", "", "try this socket"), flags.String("device", "", "try this device")
	dom := flags.String("dom", "", "the number of this domain")
	base := flags.String("base", "data/conformance", "a path where nobody else is")
	requests := flags.Int("requests", 0, "how many requests the largest case makes (10000)")
	only := flags.String("run", "", "only cases whose names match")
	if flags.Parse(args) != nil {
		return 2
	}
	names, err := regexp.Compile(*only)
	if err != nil || flags.NArg() > 0 {
		fmt.Fprintln(errs, "--run:", err, flags.Args())
		return 2
	}
	var count tally
	for _, w := range ways(*socket, *device) {
		target, err := w.target(ctx, *dom, *base)
		if err != nil {
			fmt.Fprintf(errs, "%s %s: %v\n", w.name, w.path, err)
			return 2
		}
		target.Requests = *requests
		try(ctx, w.name, target, names, &count, out)
	}
	fmt.Fprintf(out, "end: %d ok, %d failed, %d not for this machine\n", count.ok, count.failed, count.none)
	switch {
	case count.failed > 0:
		return 1
	case count.ok == 0:
		fmt.Fprintln(errs, "nothing was tried: there is no XenStore here, or no case of that name; see --socket and --device")
		return 2
	}
	return 0
}

type tally struct{ ok, failed, none int }

// try runs the cases that fit, one after the other.
func try(ctx context.Context, name string, target xenstoretest.Target, names *regexp.Regexp, count *tally, out io.Writer) {
	for _, c := range xenstoretest.Cases() {
		if !names.MatchString(c.Name) {
			continue
		}
		if !c.Fits(target) {
			count.none++
			fmt.Fprintf(out, "none %s: %s (for who %s)\n", name, c.Name, c.Needs)
			continue
		}
		start := time.Now()
		if err := c.Run(ctx, target); err != nil {
			count.failed++
			fmt.Fprintf(out, "FAIL %s: %s: %s\n", name, c.Name, strings.ReplaceAll(err.Error(), "\n", " | "))
			continue
		}
		count.ok++
		fmt.Fprintf(out, "ok %s: %s (%d ms)\n", name, c.Name, time.Since(start).Milliseconds())
	}
}

// ways returns the named links, or else the existing ones.
func ways(socket, device string) []way {
	named := socket != "" || device != ""
	if !named {
		socket, device = xenstore.SocketPath, xenstore.DevicePath
		if _, err := os.Stat(device); err != nil {
			device = xenstore.OldDevicePath
		}
	}
	var all []way
	for _, w := range []way{{"socket", socket, xenstore.Socket(socket), false}, {"device", device, xenstore.Device(device), true}} {
		if _, err := os.Stat(w.path); err == nil || named && w.path != "" {
			all = append(all, w)
		}
	}
	return all
}

// target returns the conformance target, with the domain that this program runs in.
func (w way) target(ctx context.Context, dom, base string) (xenstoretest.Target, error) {
	t := xenstoretest.Target{Dial: w.dial, Device: w.device, Base: base}
	c, err := xenstore.Dial(ctx, w.dial)
	if err != nil {
		return t, err
	}
	defer c.Close()
	if dom == "" {
		b, err := c.Read(ctx, "domid")
		if err != nil {
			return t, fmt.Errorf("which domain is this? (say --dom N) %w", err)
		}
		dom = string(b)
	}
	t.Dom, err = wire.ParseDomID(dom)
	return t, err
}
