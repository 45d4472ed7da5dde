package usage

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// Completions writes a script for bash, zsh or fish that completes commands, flags, and files as the values of flags.
func (p *Program) Completions(w io.Writer, shell string) error {
	write := map[string]func(*Program, io.Writer){"bash": (*Program).bash, "zsh": (*Program).zsh, "fish": (*Program).fish}[shell]
	if write == nil {
		return fmt.Errorf("%q: must be one of bash, zsh, fish", shell)
	}
	write(p, w)
	return nil
}

// named returns the commands that have a name, and the flags of a program without such commands.
func (p *Program) named() (commands []Command, flags *flag.FlagSet) {
	if p.Commands[0].Name == "" {
		return nil, p.Flags
	}
	return p.Commands, nil
}

func (p *Program) flagsOf(c *Command) []option {
	if c.Flags != nil {
		return options(c.Flags)
	}
	return options(p.Flags)
}

// name returns the flag without its value.
func (o option) name() string {
	name, _, _ := strings.Cut(o.spelled, " ")
	return name
}

func (o option) hasValue() bool { return strings.Contains(o.spelled, " ") }

func names(all []option) string {
	var words []string
	for _, o := range all {
		words = append(words, o.name())
	}
	return strings.Join(words, " ")
}

func (p *Program) bash(w io.Writer) {
	commands, flags := p.named()
	function := "_" + strings.ReplaceAll(p.Name, "-", "_")
	fmt.Fprintf(w, "%s() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words='%s'\n\tCOMPREPLY=()\n", function, names(options(flags)))
	if commands != nil {
		var all []string
		fmt.Fprint(w, "\tcase ${COMP_WORDS[1]} in\n")
		for i := range commands {
			all = append(all, commands[i].Name)
			fmt.Fprintf(w, "\t%s) words='%s' ;;\n", commands[i].Name, names(p.flagsOf(&commands[i])))
		}
		fmt.Fprintf(w, "\tesac\n\tif ((COMP_CWORD == 1)); then\n\t\tCOMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n\t\treturn\n\tfi\n", strings.Join(all, " "))
	}
	fmt.Fprintf(w, "\tif [[ $cur == -* ]]; then\n\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\tfi\n}\ncomplete -o default -F %s %s\n", function, p.Name)
}

// inQuotes escapes a text for single quotes of fish.
var inQuotes = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

func (p *Program) zsh(w io.Writer) {
	special := strings.NewReplacer(`'`, `'\''`, `[`, `\[`, `]`, `\]`, `:`, `\:`)
	arguments := func(all []option) {
		fmt.Fprint(w, "_arguments")
		for _, o := range all {
			value := ""
			if o.hasValue() {
				value = ":value:_files"
			}
			fmt.Fprintf(w, " \\\n\t'%s[%s]%s'", o.name(), special.Replace(o.text), value)
		}
		fmt.Fprintln(w)
	}
	commands, flags := p.named()
	fmt.Fprintf(w, "#compdef %s\n", p.Name)
	if commands == nil {
		arguments(options(flags))
		return
	}
	fmt.Fprint(w, "if (( CURRENT == 2 )); then\n\tlocal -a commands=(\n")
	for _, c := range commands {
		fmt.Fprintf(w, "\t\t'%s:%s'\n", c.Name, special.Replace(oneLine(c.Text)))
	}
	fmt.Fprint(w, "\t)\n\t_describe command commands\n\treturn\nfi\nshift words\n(( CURRENT-- ))\ncase $words[1] in\n")
	for i := range commands {
		fmt.Fprintf(w, "%s)\n", commands[i].Name)
		arguments(p.flagsOf(&commands[i]))
		fmt.Fprint(w, ";;\n")
	}
	fmt.Fprint(w, "esac\n")
}

func (p *Program) fish(w io.Writer) {
	flagLines := func(condition string, all []option) {
		for _, o := range all {
			kind := "-l " + strings.TrimPrefix(o.name(), "--")
			if !strings.HasPrefix(o.name(), "--") {
				kind = "-s " + o.name()[1:]
			}
			if o.hasValue() {
				kind += " -r"
			}
			fmt.Fprintf(w, "complete -c %s%s %s -d '%s'\n", p.Name, condition, kind, inQuotes.Replace(o.text))
		}
	}
	commands, flags := p.named()
	flagLines("", options(flags))
	for i := range commands {
		c := &commands[i]
		fmt.Fprintf(w, "complete -c %s -n __fish_use_subcommand -f -a %s -d '%s'\n", p.Name, c.Name, inQuotes.Replace(oneLine(c.Text)))
		flagLines(" -n '__fish_seen_subcommand_from "+c.Name+"'", p.flagsOf(c))
	}
}
