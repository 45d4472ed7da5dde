package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pegasus/configs"
	"pegasus/internal/usage"
)

const (
	introduction = "Pegasus shares accelerators between domains, in proportion to their credits."
	exitStatus   = `0 if the command did its work, 1 if it failed, 2 if the command line is wrong. pegasus run
has the exit status of its program, 126 if that can't be executed, and 127 if there is no such program.`
	firstSteps = `Try:
  pegasus run -- ./my-cuda-program    run a CUDA program
  pegasus domains --watch             see each domain's use
  pegasus help run                    what a command does, with examples
`
)

// tree returns the command line: a command of cobra's for each of the table.
func tree(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use: "pegasus COMMAND [FLAGS] [ARGUMENTS]", DisableFlagsInUseLine: true,
		Short: "share accelerators between domains", Long: introduction,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(cc *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(args[0])
			}
			overview(s.err)
			return &exit{exitUsage, errors.New("name a command")}
		},
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cc *cobra.Command, _ []string) {
		if cc == root || cc.Name() == "help" {
			overview(s.out)
			return
		}
		describe(s.out, cc)
	})
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "what a command does, with examples",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, cmd := range shown() {
				names = append(names, cobra.CompletionWithDesc(cmd.name, cmd.short))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return root.Help()
			}
			cc, _, err := root.Find(args[:1])
			if err != nil || cc == root {
				return noCommand(args[0])
			}
			return cc.Help()
		},
	})
	for i := range commands() {
		root.AddCommand(branch(&commands()[i], s))
	}
	return root
}

// branch returns a command of the table as one of cobra's.
func branch(cmd *command, s *streams) *cobra.Command {
	c := newCall(cmd, s)
	do := cmd.run(c)
	cc := &cobra.Command{
		Use: strings.TrimSpace(cmd.name + " " + cmd.args), DisableFlagsInUseLine: true,
		Short: cmd.short, Long: strings.TrimSpace(cmd.long), Hidden: cmd.hidden,
		RunE: func(_ *cobra.Command, operands []string) error { return do(operands) },
	}
	cc.Flags().SortFlags = true
	cc.Flags().AddFlagSet(c.flags)
	cc.Flags().SetInterspersed(!cmd.greedy)
	for _, name := range cmd.older {
		c.flags.Lookup(name).Hidden = true
	}
	completeWith(cc, c, cmd.complete)
	return cc
}

// shown returns the commands that the help lists.
func shown() (all []*command) {
	for i := range commands() {
		if cmd := &commands()[i]; !cmd.hidden {
			all = append(all, cmd)
		}
	}
	return all
}

func find(name string) *command {
	for i := range commands() {
		if c := &commands()[i]; c.name == name {
			return c
		}
	}
	return nil
}

// noCommand returns the error for a name that is no command's. The start of a name is near enough for a suggestion.
func noCommand(name string) error {
	var names []string
	for _, c := range shown() {
		if name != "" && strings.HasPrefix(c.name, name) {
			return usagef("there is no command %q; did you mean %q?", name, c.name)
		}
		names = append(names, c.name)
	}
	if nearest := configs.DidYouMean(name, names); nearest != "" {
		return usagef("there is no command %q%s", name, nearest)
	}
	return usagef("there is no command %q; `pegasus help` lists them", name)
}

// flagError returns the error for a flag that the command lacks, or that has a wrong value.
func flagError(cc *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wrong *pflag.InvalidValueError
	var empty *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if !cc.HasParent() {
			return usagef("there is no flag --%s before the command; flags stand after it", name)
		}
		var names []string
		cc.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		})
		return usagef("there is no flag --%s%s", name, configs.DidYouMean("--"+name, names))
	case errors.As(err, &wrong):
		cause := wrong.Unwrap()
		var number *strconv.NumError
		if errors.As(cause, &number) {
			cause = number.Err
		}
		return usagef("invalid value %q for flag --%s: %v", wrong.GetValue(), wrong.GetFlag().Name, cause)
	case errors.As(err, &empty):
		value, _ := pflag.UnquoteUsage(empty.GetFlag())
		return usagef("--%s: its value is missing, a %s", empty.GetFlag().Name, value)
	}
	return usagef("%v", err)
}

// spelledAnew returns arguments as pflag expects them. Earlier releases had the grammar of Go's package flag: a name of
// several letters could follow a single dash, and one letter two dashes. The first own arguments are those of pegasus,
// the others those of a program.
func spelledAnew(root *cobra.Command, args []string) (anew []string, own int) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return []string{}, 0 // nil: cobra takes those of the process
	}
	switch args[0] {
	case "-h", "-help", "--help":
		args = append([]string{"help"}, args[1:]...)
	case "-v", "-version", "--version":
		args = append([]string{"version"}, args[1:]...)
	}
	cc, _, err := root.Find(args[:1])
	if err != nil || cc == root {
		if strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // a command line that is being typed
			return args, 0
		}
		return args, len(args)
	}
	cmd := find(cc.Name())
	greedy := cmd != nil && cmd.greedy
	anew = args[:1:1]
	for i := 1; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			anew = append(anew, args[i:]...)
			if greedy {
				return anew, i
			}
			return anew, len(anew)
		}
		name, isFlag := strings.CutPrefix(arg, "-")
		if !isFlag || name == "" {
			if greedy {
				return append(anew, args[i:]...), i
			}
			anew = append(anew, arg)
			continue
		}
		name = strings.TrimPrefix(name, "-")
		key, _, hasValue := strings.Cut(name, "=")
		f := cc.Flags().Lookup(key)
		if len(key) == 1 {
			f = cc.Flags().ShorthandLookup(key)
			anew = append(anew, "-"+name)
		} else {
			anew = append(anew, "--"+name)
		}
		if f != nil && f.NoOptDefVal == "" && !hasValue && i+1 < len(args) { // the next one is its value
			i++
			anew = append(anew, args[i])
		}
	}
	return anew, len(anew)
}

func overview(w io.Writer) {
	fmt.Fprintf(w, "%s\n\nusage: pegasus COMMAND [FLAGS] [ARGUMENTS]\n\n", introduction)
	for _, c := range shown() {
		fmt.Fprint(w, usage.Wrap(fmt.Sprintf("  %-13s %s", c.name, c.short), usage.Width))
	}
	fmt.Fprint(w, "\n"+usage.Wrap("The exit status is "+exitStatus, usage.Width)+"\n"+firstSteps)
}

// usageLine returns a command's usage, which may have several lines.
func usageLine(cc *cobra.Command) string {
	line := "usage: " + cc.UseLine()
	return strings.TrimSuffix(usage.Hang(line, 4, usage.Width), "\n")
}

func describe(w io.Writer, cc *cobra.Command) {
	fmt.Fprintf(w, "%s\n\n%s\nFlags:\n", usageLine(cc), usage.Wrap(cc.Long, usage.Width))
	for _, line := range flagLines(cc) {
		fmt.Fprint(w, usage.Hang(line, 30, usage.Width))
	}
}

// flagLines returns a line for each flag of a command that its help names: -SHORT, --NAME VALUE TEXT.
func flagLines(cc *cobra.Command) (lines []string) {
	cc.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		if f.Value.Type() == "bool" {
			value = ""
		}
		if value != "" {
			value = " " + strings.ToUpper(value)
		}
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		lines = append(lines, fmt.Sprintf("  %-27s %s", short+"--"+f.Name+value, text))
	})
	return lines
}
