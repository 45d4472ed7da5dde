package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// columns runs a command on a terminal of so many columns. No line may be longer or, unless the command is domains
// --watch, contain an escape sequence. The output becomes the file terminal.
func columns(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: columns N COMMAND ARGS…")
	}
	limit, err := strconv.Atoi(args[0])
	ts.Check(err)
	out, err := onTerminal(ts, limit, args[1:])
	if (err != nil) != neg {
		ts.Fatalf("%v: %v\n%s", args[1:], err, out)
	}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if n := utf8.RuneCountInString(line); n > limit {
			ts.Fatalf("%v: a line of %d columns, want at most %d: %q", args[1:], n, limit, line)
		}
		if strings.Contains(line, "\x1b") {
			ts.Fatalf("%v: an escape sequence in %q", args[1:], line)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("terminal"), []byte(out), 0o666))
}

// onTerminal returns the output of a command to a terminal, of its standard error, too.
func onTerminal(ts *testscript.TestScript, width int, args []string) (string, error) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	ts.Check(err)
	defer terminal.Close()
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	ts.Check(err)
	ts.Check(unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0))
	ts.Check(unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: uint16(width)}))
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	ts.Check(err)
	defer side.Close()
	program := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil && !strings.Contains(program, "/") {
			program = filepath.Join(dir, program)
		}
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "WORK", "PEGASUS_RUNTIME_DIR", "PEGASUS_LIBCUDA"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdout, cmd.Stderr = side, side
	read := make(chan string)
	go func() {
		var all []byte
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			all = append(all, buf[:n]...)
			if err != nil { // EIO: the last process has closed its side
				read <- string(all)
				return
			}
		}
	}()
	err = cmd.Run()
	side.Close()
	return <-read, err
}
