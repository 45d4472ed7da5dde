// Visit makes the most of a short time on a machine with a GPU. The program and its folder are all that is
// needed there: `make gpu-visit` builds the folder.
//
//	visit facts   [flags]   properties of the driver and the device, and recorded calls
//	visit agree   [flags]   whether programs give the same results under Pegasus as without
//	visit measure [flags]   their speed, each way, and the shares of competing domains
//	visit list              all of their steps, as the table in docs/results/unverified.md
//
// Each command takes less than nine minutes and consists of steps with a time limit of their own. The
// findings of a step are written to COMMAND.json and COMMAND.md in the folder --out as soon as it has ended,
// and the output of its programs to COMMAND.log meanwhile. Steps with existing results are not repeated.
//
// A step that needs something that the machine lacks, such as PyTorch, is recorded as skipped with the
// reason. With --rehearse the driver is our own library, connected to a software accelerator, and the steps
// are short.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// commands are the steps of each command, the most valuable first.
var commands = map[string][]step{
	"facts":   facts,
	"agree":   agree,
	"measure": measure,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "visit:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: visit list, or visit facts|agree|measure [--out FOLDER] [--driver FILE] [--rehearse] [--only STEP,…] [--policies NAME,…] [--budget TIME]")

func run(ctx context.Context, args []string, say io.Writer) error {
	if len(args) == 1 && args[0] == "list" {
		_, err := io.WriteString(say, list())
		return err
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return errUsage
	}
	v := &visit{command: args[0], say: say}
	f := flag.NewFlagSet("visit", flag.ContinueOnError)
	f.StringVar(&v.out, "out", ".", "write to this `folder`")
	f.StringVar(&v.driver, "driver", "", "NVIDIA's libcuda.so.1, a `file` (default where the system has it)")
	f.BoolVar(&v.rehearsal, "rehearse", false, "with the software accelerator as the device")
	policies := f.String("policies", "none,accc,lag,ht", "which `policies` shares and latency are measured under")
	only := f.String("only", "", "only these `steps`, separated by commas")
	budget := f.Duration("budget", 9*time.Minute, "begin nothing that can't end within this `time`")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return errUsage
	}
	steps, err := choose(commands[v.command], *only)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	v.folder, v.policies = filepath.Dir(self), strings.Split(*policies, ",")
	if err := v.begin(); err != nil {
		return err
	}
	defer v.end()
	ctx, cancel := context.WithTimeout(ctx, *budget)
	defer cancel()
	return v.do(ctx, steps)
}

// list returns the table of all steps.
func list() string {
	var b strings.Builder
	b.WriteString("| command | step | result |\n|---|---|---|\n")
	for _, c := range []string{"facts", "agree", "measure"} {
		for _, s := range commands[c] {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c, s.name, s.about)
		}
	}
	return b.String()
}

// choose returns the steps of these names, all if none is given.
func choose(all []step, names string) ([]step, error) {
	if names == "" {
		return all, nil
	}
	var chosen []step
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(s step) bool { return s.name == name })
		if i < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("--only %s: there is no such step; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
