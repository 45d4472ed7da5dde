package usage

import (
	"flag"
	"io"
	"strings"
	"testing"
)

func player() (*Program, *int) {
	f := flag.NewFlagSet("play", flag.ContinueOnError)
	n := f.Int("speed", 3, "`number` of steps")
	f.Bool("loud", false, "with sound")
	return &Program{Name: "prog", Short: "plays", Text: "A text.\n\n  prog play\n\n.Another\\ one.", See: "other(1)",
		Commands: []Command{{Name: "play", Args: "[--speed NUMBER] [--loud]", Text: "Plays.", Flags: f}}}, n
}

// Help and man page have the same usage, texts and flags.
func TestTexts(t *testing.T) {
	p, _ := player()
	var help, command, man strings.Builder
	p.Help(&help)
	p.Commands[0].Help(&command, p)
	p.ManPage(&man)
	for _, test := range []struct{ kind, got, want string }{
		{"help", help.String(), "usage: prog play [--speed NUMBER] [--loud]\n\nA text.\n\n  prog play\n\n.Another\\ one.\n\nCommands:\n  play       Plays.\n"},
		{"help of play", command.String(), "usage: prog play [--speed NUMBER] [--loud]\n\nPlays.\n\nFlags:\n" +
			"  --loud                      with sound\n  --speed NUMBER              number of steps (default 3)\n"},
		{"man page", man.String(), `.TH PROG 8 "" Pegasus Pegasus
.SH NAME
prog \- plays
.SH SYNOPSIS
\fBprog play\fR [\-\-speed NUMBER] [\-\-loud]
.br
.SH DESCRIPTION
A text.
.PP
.RS
.nf
prog play
.fi
.RE
.PP
\&.Another\e one.
.SH COMMANDS
.SS play
Plays.
.TP
\fB\-\-loud\fR
with sound
.TP
\fB\-\-speed NUMBER\fR
number of steps (default 3)
.SH SEE ALSO
other(1)
`},
	} {
		if test.got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.kind, test.got, test.want)
		}
	}
}

// A wrong command line is answered with one line that names the command and its help; --help goes to standard output.
func TestParse(t *testing.T) {
	for _, test := range []struct {
		args        string
		operands    int
		code        int
		out, errors string
	}{
		{"--speed 4", 0, -1, "", ""},
		{"--sped 4", 0, 2, "", "prog play: there is no flag --sped; see prog play --help\n"},
		{"-speed x", 0, 2, "", `prog play: invalid value "x" for flag --speed: parse error; see prog play --help` + "\n"},
		{"more", 0, 2, "", "prog play: unexpected argument \"more\"\n"},
		{"", 1, 2, "", "prog play: an argument is missing; see prog play --help\n"},
		{strings.Repeat("x", 70000), 0, 2, "", `prog play: argument 1, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"…: 70000 bytes, at most 4096 are allowed` + "\n"},
		{"--help", 1, 0, "usage: prog play", ""},
	} {
		p, n := player()
		var out, errs strings.Builder
		code := p.Parse(&p.Commands[0], strings.Fields(test.args), test.operands, &out, &errs)
		if code != test.code || !strings.HasPrefix(out.String(), test.out) || errs.String() != test.errors || code < 0 && *n != 4 {
			t.Errorf("%q: got status %d, output %q, errors %q; want %d, %q, %q", test.args, code, out.String(), errs.String(), test.code, test.out, test.errors)
		}
	}
}

func TestChoose(t *testing.T) {
	p, _ := player()
	for args, want := range map[string]int{"": 2, "dance": 2, "help": 0, "--help": 0, ManCommand: 0} {
		if c, code := p.Choose(strings.Fields(args), io.Discard, io.Discard); c != nil || code != want {
			t.Errorf("%q: got %v, status %d; want no command, status %d", args, c, code, want)
		}
	}
	if c, _ := p.Choose([]string{"play", "--loud"}, io.Discard, io.Discard); c == nil || c.Name != "play" {
		t.Errorf("play: got %v", c)
	}
}
