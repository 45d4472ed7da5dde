// Package usage writes help texts and man pages of programs that parse their flags by package flag, both from one
// definition.
//
// # Callers
//
// The mains of cmd. The command line of cmd/pegasus is made by cobra; it uses this package's line breaking only.
//
// # Trust boundary
//
// None: all texts are constants of the programs.
package usage

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Width is the number of columns of help texts.
const Width = 80

// Arguments by which each program prints its man page, and its completions for the shell in the next argument. They
// are for the build, not for users.
const (
	ManCommand        = "man-page"
	CompletionCommand = "completions"
)

// Program describes a program's command line. Texts are paragraphs; their indented lines stand as they are.
type Program struct {
	Name, Short, Text string
	Commands          []Command
	Flags             *flag.FlagSet // of the commands that have none of their own
	See               string        // pages of related programs
}

// Command is one form of the command line.
type Command struct {
	Name  string // empty: the program is run without a command
	Args  string // flags and operands
	Text  string
	Flags *flag.FlagSet // nil: those of the program
}

func (p *Program) line(c *Command) string {
	return strings.Join(strings.Fields(p.Name+" "+c.Name+" "+c.Args), " ")
}

// Usage writes the usage lines of all commands.
func (p *Program) Usage(w io.Writer) {
	for i := range p.Commands {
		fmt.Fprint(w, Hang([]string{"usage: ", "       "}[min(i, 1)]+p.line(&p.Commands[i]), 11, Width))
	}
}

// Help writes the help text of the program.
func (p *Program) Help(w io.Writer) {
	p.Usage(w)
	fmt.Fprint(w, "\n"+Wrap(p.Text, Width))
	if p.Commands[0].Name != "" {
		fmt.Fprint(w, "\nCommands:\n")
	}
	for i := range p.Commands {
		if c := &p.Commands[i]; c.Name != "" {
			fmt.Fprint(w, Hang(fmt.Sprintf("  %-10s %s", c.Name, oneLine(c.Text)), 13, Width))
		}
	}
	help(w, p.Flags)
}

// Help writes the help text of one command of the program.
func (c *Command) Help(w io.Writer, p *Program) {
	fmt.Fprint(w, Hang("usage: "+p.line(c), 11, Width)+"\n"+Wrap(c.Text, Width))
	help(w, cmp.Or(c.Flags, p.Flags))
}

func help(w io.Writer, flags *flag.FlagSet) {
	for i, f := range options(flags) {
		if i == 0 {
			fmt.Fprint(w, "\nFlags:\n")
		}
		fmt.Fprint(w, Hang(fmt.Sprintf("  %-27s %s", f.spelled, f.text), 30, Width))
	}
}

// Parse parses a command's flags and checks the number of operands. If the process has to end it returns the exit
// status, else a negative number. Errors name the command.
func (p *Program) Parse(c *Command, args []string, operands int, out, errs io.Writer) int {
	flags := cmp.Or(c.Flags, p.Flags)
	name := strings.TrimSpace(p.Name + " " + c.Name)
	if err := CheckArguments(args); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", name, err)
		return 2
	}
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp) && c.Name == "":
		p.Help(out)
		return 0
	case errors.Is(err, flag.ErrHelp):
		c.Help(out, p)
		return 0
	case err != nil:
		fmt.Fprintf(errs, "%s: %s; see %s --help\n", name, dashes.Replace(err.Error()), name)
		return 2
	case flags.NArg() > operands:
		fmt.Fprintf(errs, "%s: unexpected argument %q\n", name, flags.Arg(operands))
		return 2
	case flags.NArg() < operands:
		fmt.Fprintf(errs, "%s: an argument is missing; see %s --help\n", name, name)
		return 2
	}
	return -1
}

// Document writes the man page or completions if the arguments are those of the build. It returns the exit status, and a
// negative number for other arguments.
func (p *Program) Document(args []string, out, errs io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == ManCommand:
		p.ManPage(out)
	case len(args) == 2 && args[0] == CompletionCommand:
		if err := p.Completions(out, args[1]); err != nil {
			fmt.Fprintf(errs, "%s: %v\n", p.Name, err)
			return 2
		}
	default:
		return -1
	}
	return 0
}

// Choose returns the command that the first argument names. If there is none it returns nil and an exit status, after
// it has written help, the man page or an error.
func (p *Program) Choose(args []string, out, errs io.Writer) (*Command, int) {
	if len(args) == 0 {
		p.Usage(errs)
		return nil, 2
	}
	if err := CheckArguments(args[:1]); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", p.Name, err)
		return nil, 2
	}
	for i := range p.Commands {
		if p.Commands[i].Name == args[0] {
			return &p.Commands[i], 0
		}
	}
	if code := p.Document(args, out, errs); code >= 0 {
		return nil, code
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		p.Help(out)
		return nil, 0
	}
	fmt.Fprintf(errs, "%s: there is no command %q\n", p.Name, args[0])
	p.Usage(errs)
	return nil, 2
}

// dashes spells the names of flags in errors of package flag as the help does.
var dashes = strings.NewReplacer("flag provided but not defined: -", "there is no flag --", "for flag -", "for flag --", "flag needs an argument: -", "missing value of flag --")

// maxArgument is the limit of an argument's length, that of a path.
const maxArgument = 4096

// CheckArguments returns an error for an argument that is too long for every flag and operand. The error has the
// beginning of the argument only.
func CheckArguments(args []string) error {
	for i, arg := range args {
		if len(arg) > maxArgument {
			return fmt.Errorf("argument %d, %.32q…: %d bytes, at most %d are allowed", i+1, arg, len(arg), maxArgument)
		}
	}
	return nil
}

// option is a flag as help texts and man pages print it.
type option struct{ spelled, text string }

func options(flags *flag.FlagSet) (all []option) {
	if flags == nil {
		return nil
	}
	flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		spelled := "--" + f.Name
		if len(f.Name) == 1 {
			spelled = "-" + f.Name
		}
		if value != "" {
			spelled += " " + strings.ToUpper(value)
		}
		switch f.DefValue {
		case "", "0", "-1", "false": // no setting
		default:
			text += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		all = append(all, option{spelled, text})
	})
	return all
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// ManPage writes the page of section 8 of the manual. It has no date: the same release writes the same page.
func (p *Program) ManPage(w io.Writer) {
	fmt.Fprintf(w, ".TH %s 8 \"\" Pegasus Pegasus\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(strings.ToUpper(p.Name)), roff(p.Name), roff(p.Short))
	for i := range p.Commands {
		fmt.Fprintf(w, "\\fB%s\\fR %s\n.br\n", roff(strings.TrimSpace(p.Name+" "+p.Commands[i].Name)), roff(p.Commands[i].Args))
	}
	fmt.Fprint(w, ".SH DESCRIPTION\n")
	manText(w, p.Text)
	if p.Commands[0].Name != "" {
		fmt.Fprint(w, ".SH COMMANDS\n")
	}
	for i := range p.Commands {
		if c := &p.Commands[i]; c.Name != "" {
			fmt.Fprintf(w, ".SS %s\n", roff(c.Name))
			manText(w, c.Text)
			manOptions(w, c.Flags)
		}
	}
	if p.Flags != nil {
		fmt.Fprint(w, ".SH OPTIONS\n")
		manOptions(w, p.Flags)
	}
	fmt.Fprintf(w, ".SH SEE ALSO\n%s\n", roff(p.See))
}

func manOptions(w io.Writer, flags *flag.FlagSet) {
	for _, o := range options(flags) {
		fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s\n", roff(o.spelled), roff(o.text))
	}
}

func manText(w io.Writer, text string) {
	for i, part := range strings.Split(text, "\n\n") {
		if i > 0 {
			fmt.Fprint(w, ".PP\n")
		}
		block := strings.HasPrefix(part, " ")
		if block {
			fmt.Fprint(w, ".RS\n.nf\n")
		}
		for line := range strings.Lines(part) {
			fmt.Fprintln(w, roff(strings.TrimSuffix(strings.TrimPrefix(line, "  "), "\n")))
		}
		if block {
			fmt.Fprint(w, ".fi\n.RE\n")
		}
	}
}

var signs = strings.NewReplacer(`\`, `\e`, "-", `\-`)

// roff returns a line's text with its signs standing for themselves.
func roff(text string) string {
	text = signs.Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
