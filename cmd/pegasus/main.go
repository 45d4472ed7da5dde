// Pegasus is the command of operators and users.
//
//	pegasus run [--domain NAME] [--credits N] -- PROGRAM ARGS…
//	pegasus domains | accelerators | policy | create | renew | release | remove | set | reload | events | trace | why | doctor | attach | detach | stop | demo | version
//
// It connects to the host's daemon at /run/pegasus if one runs there and permits it, otherwise to the user's
// own private daemon, which `run` starts. Every command that prints data takes --json. `pegasus help COMMAND`
// explains each with examples.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pegasus/backend/client"
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

// command is one line of the table.
type command struct {
	name, args, short string
	long              string // after the usage line: its effect, with examples
	run               func(c *call, args []string) error
	greedy            bool     // the arguments after the first operand are not parsed
	older             []string // flags of earlier releases, which work but have left the help
}

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
	code := dispatch(args, &streams{s.in, out, s.err})
	if code == exitOK && out.err != nil {
		fmt.Fprintf(s.err, "pegasus %s: %v\n", args[0], out.err)
		return exitFailed
	}
	return code
}

func dispatch(args []string, s *streams) int {
	if len(args) == 0 {
		overview(s.err)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "-h", "--help", "-help", "help":
		return help(rest, s)
	case "-v", "--version", "-version":
		name = "version"
	}
	cmd := find(name)
	if cmd == nil {
		fmt.Fprintf(s.err, "pegasus: there is no command %q%s; `pegasus help` lists them\n", name, nearest(name))
		return exitUsage
	}
	return invoke(cmd, rest, s)
}

func invoke(cmd *command, args []string, s *streams) int {
	c := newCall(cmd, s)
	err := cmd.run(c, args)
	if errors.Is(err, flag.ErrHelp) {
		describe(s.out, cmd, c.flags)
		return exitOK
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(s.err, "pegasus %s: %v\n", cmd.name, err)
	var e *exit
	if errors.As(err, &e) {
		if e.code == exitUsage {
			fmt.Fprintf(s.err, "usage: pegasus %s %s\n`pegasus help %s` describes it\n", cmd.name, cmd.args, cmd.name)
		}
		return e.code
	}
	return exitFailed
}

func find(name string) *command {
	for i := range commands() {
		if c := &commands()[i]; c.name == name {
			return c
		}
	}
	return nil
}

// nearest suggests a command that begins alike.
func nearest(name string) string {
	for _, c := range commands() {
		if strings.HasPrefix(c.name, name) || strings.HasPrefix(name, c.name) || (len(name) > 1 && strings.HasPrefix(c.name, name[:2])) {
			return fmt.Sprintf(" (did you mean %q?)", c.name)
		}
	}
	return ""
}

func help(args []string, s *streams) int {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		overview(s.out)
		return exitOK
	}
	cmd := find(args[0])
	if cmd == nil {
		fmt.Fprintf(s.err, "pegasus: there is no command %q%s\n", args[0], nearest(args[0]))
		return exitUsage
	}
	return invoke(cmd, []string{"--help"}, s)
}

func overview(w io.Writer) {
	fmt.Fprint(w, `Pegasus shares accelerators between domains, in proportion to their credits.

usage: pegasus COMMAND [FLAGS] [ARGUMENTS]

`)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, `
Try:
  pegasus run -- ./my-cuda-program        run a CUDA program, starting a private daemon if none runs
  pegasus domains --watch                 see each domain's use
  pegasus help run                        what a command does, with examples
`)
}

func describe(w io.Writer, cmd *command, flags *flag.FlagSet) {
	fmt.Fprintf(w, "usage: pegasus %s %s\n\n%s\n", cmd.name, cmd.args, strings.TrimSpace(cmd.long))
	fmt.Fprintf(w, "\nFlags:\n")
	flags.VisitAll(func(f *flag.Flag) {
		if slices.Contains(cmd.older, f.Name) {
			return
		}
		value, text := flag.UnquoteUsage(f)
		if value != "" {
			value = " " + strings.ToUpper(value)
		}
		fmt.Fprintf(w, "  --%-22s %s\n", f.Name+value, text)
	})
}

// call is one invocation of a command.
type call struct {
	*streams
	cmd   *command
	flags *flag.FlagSet
	json  bool
	dir   string
}

func newCall(cmd *command, s *streams) *call {
	c := &call{streams: s, cmd: cmd, flags: flag.NewFlagSet(cmd.name, flag.ContinueOnError)}
	c.flags.SetOutput(io.Discard)
	c.flags.StringVar(&c.dir, "runtime-dir", "", "talk to the daemon of this `directory`, no other")
	return c
}

// jsonFlag defines the flag --json, for commands that print data.
func (c *call) jsonFlag() { c.flags.BoolVar(&c.json, "json", false, "print JSON, for programs") }

// given reports whether a flag is among the arguments.
func (c *call) given(flagName string) (given bool) {
	c.flags.Visit(func(f *flag.Flag) { given = given || f.Name == flagName })
	return given
}

// parse parses flags anywhere among the arguments and returns the operands; at least min, at most max of them
// (max < 0: any number).
func (c *call) parse(args []string, min, max int) ([]string, error) {
	var operands []string
	for {
		if err := c.flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usagef("%v", err)
		}
		rest := c.flags.Args()
		if ended := len(args) > len(rest) && args[len(args)-len(rest)-1] == "--"; c.cmd.greedy || ended {
			operands = append(operands, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
	if c.dir != "" { // a private daemon has another working directory
		dir, err := filepath.Abs(c.dir)
		if err != nil {
			return nil, err
		}
		c.dir = dir
	}
	switch {
	case len(operands) < min:
		return nil, usagef("an argument is missing")
	case max >= 0 && len(operands) > max:
		return nil, usagef("unexpected argument %q", operands[max])
	}
	return operands, nil
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
