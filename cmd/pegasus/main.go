// Pegasus is the command of operators and users.
//
//	pegasus run [--domain NAME] [--credits N] -- PROGRAM ARGS…
//	pegasus domains | accelerators | policy | …
//
// commands.go has the table of its commands, from which tree.go makes the command line, on github.com/spf13/cobra;
// docs/zz_commands.md describes them all. It connects to the host's daemon at /run/pegasus if one runs there and
// permits it, otherwise to the user's own private daemon, which `run` starts. Every command that prints data takes
// --json.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pegasus/backend/client"
	"pegasus/internal/usage"
)

func main() {
	os.Exit(run(os.Args[1:], &streams{os.Stdin, os.Stdout, os.Stderr}))
}

// streams are the command's standard streams.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// Exit codes, beside those of the program that `run` becomes.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNotRun  = 126 // run: the program can't be executed
	exitMissing = 127 // run: there is no such program
)

// exit is an error with an exit code.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, args...)}
}

// command is one line of the table, from which tree makes a command of cobra's, with its help, completions and pages.
type command struct {
	name, args, short string
	long              string               // after the usage line: its effect, with examples
	run               func(c *call) action // declares the flags
	complete          completer            // of operands; nil: files
	greedy            bool                 // the arguments after the first operand are not parsed
	hidden            bool                 // not in the help
	older             []string             // flags of earlier releases, which work but have left the help
}

// action carries out a command with its operands, once the flags have their values.
type action func(operands []string) error

// printed is a writer that remembers the first error: a command must not lose half of its output silently.
type printed struct {
	io.Writer
	err error
}

func (w *printed) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.err = cmp.Or(w.err, err)
	return n, err
}

func run(args []string, s *streams) int {
	out := &printed{Writer: s.out}
	code := execute(args, &streams{s.in, out, s.err})
	if code == exitOK && out.err != nil {
		fmt.Fprintf(s.err, "pegasus %s: %v\n", args[0], out.err)
		return exitFailed
	}
	return code
}

func execute(args []string, s *streams) int {
	root := tree(s)
	args, own := spelledAnew(root, args)
	if err := usage.CheckArguments(args[:own]); err != nil {
		fmt.Fprintf(s.err, "pegasus: %v\n", err)
		return exitUsage
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainDescriptions(root)
	}
	root.SetArgs(args)
	cc, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	if cc == root {
		fmt.Fprintf(s.err, "pegasus: %v\n", err)
	} else {
		fmt.Fprintf(s.err, "pegasus %s: %s\n", cc.Name(), strings.TrimPrefix(err.Error(), cc.Name()+" ")) // the operation is the command
	}
	var e *exit
	if !errors.As(err, &e) {
		return exitFailed
	}
	if e.code == exitUsage && cc != root {
		fmt.Fprintf(s.err, "%s\n`pegasus help %s` describes it\n", usageLine(cc), cc.Name())
	}
	return e.code
}

// call is one invocation of a command.
type call struct {
	*streams
	flags *pflag.FlagSet
	json  bool
	wide  bool
	dir   string
}

func newCall(cmd *command, s *streams) *call {
	c := &call{streams: s, flags: pflag.NewFlagSet(cmd.name, pflag.ContinueOnError)}
	c.flags.StringVar(&c.dir, "runtime-dir", "", "talk to the daemon of this `directory`, no other")
	return c
}

// jsonFlag defines the flag --json, for commands that print data.
func (c *call) jsonFlag() { c.flags.BoolVar(&c.json, "json", false, "print JSON, for programs") }

// wideFlag defines the flag --wide, for commands whose table leaves out columns on a narrow terminal.
func (c *call) wideFlag() {
	c.flags.BoolVar(&c.wide, "wide", false, "print all columns, however narrow the terminal")
}

// given reports whether a flag is among the arguments.
func (c *call) given(flagName string) bool { return c.flags.Changed(flagName) }

// takes returns an action with at least min and at most max operands (max < 0: any number).
func (c *call) takes(min, max int, do action) action {
	return func(operands []string) error {
		switch {
		case len(operands) < min:
			return usagef("an argument is missing")
		case max >= 0 && len(operands) > max:
			return usagef("unexpected argument %q", operands[max])
		}
		empty := ""
		c.flags.VisitAll(func(f *pflag.Flag) {
			if f.Changed && f.Value.Type() == "string" && f.Value.String() == "" { // as of a shell variable that is not set
				empty = f.Name
			}
		})
		if empty != "" {
			return usagef("--%s \"\": needs a value", empty)
		}
		if c.dir != "" { // a private daemon has another working directory
			dir, err := filepath.Abs(c.dir)
			if err != nil {
				return err
			}
			c.dir = dir
		}
		return do(operands)
	}
}

// ask returns an answer of the running daemon.
func ask[T any](c *call, do func(daemon *client.Client, ctx context.Context) (T, error)) (answer T, err error) {
	daemon, err := c.dial()
	if err != nil {
		return answer, err
	}
	defer daemon.Close()
	return do(daemon, context.Background())
}

// request sends the running daemon a request without an answer.
func (c *call) request(do func(daemon *client.Client, ctx context.Context) error) error {
	_, err := ask(c, func(daemon *client.Client, ctx context.Context) (struct{}, error) { return struct{}{}, do(daemon, ctx) })
	return err
}

func (c *call) dial() (*client.Client, error) {
	daemon, _, err := dial(c.dir)
	return daemon, err
}
