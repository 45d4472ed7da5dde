package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"pegasus/backend/control"
	"pegasus/guest/setup"
	"pegasus/internal/usage"
)

// Possible results of a check.
const (
	fine = "ok"
	warn = "warn"
	fail = "fail"
)

func good(name, detail string) control.Check {
	return control.Check{Name: name, State: fine, Detail: detail}
}

// bad returns a failure with its remedy.
func bad(name, detail, fix string) control.Check {
	return control.Check{Name: name, State: fail, Detail: detail, Fix: fix}
}

// doctor does all checks; the exit status is 1 if a CUDA program would fail here.
func doctor(out io.Writer) command {
	flags := newFlags("doctor")
	asJSON := flags.Bool("json", false, "print JSON")
	return command{
		usage.Command{
			Name: "doctor", Args: "[--json]", Flags: flags,
			Text: "Checks whether a CUDA program here would find Pegasus, and explains why not. The exit status is 1 if a program would fail.",
		},
		func() int { return checkAll(out, *asJSON) },
	}
}

func checkAll(out io.Writer, asJSON bool) int {
	var all []control.Check
	if path := os.Getenv("PEGASUS_SOCKET"); path != "" {
		all = append(all, checkSocket(path))
	} else {
		all = append(all, thisMachine.check()...)
	}
	all = append(all, checkLibrary(libraryName, os.Getenv("LD_LIBRARY_PATH")))
	all = append(all, checkCompanions("/", os.Getenv("LD_LIBRARY_PATH"))...)
	status := 0
	for _, f := range all {
		if f.State == fail {
			status = 1
		}
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.Encode(all)
		return status
	}
	for _, f := range all {
		fmt.Fprintf(out, "%-4s  %-9s  %s\n", map[string]string{fine: "ok", warn: "note", fail: "FAIL"}[f.State], f.Name, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(out, "%17s→ %s\n", "", f.Fix)
		}
	}
	return status
}

// checkCompanions lists the libraries beside the driver's that programs don't find here. Only programs that
// need them fail.
func checkCompanions(root, searchPath string) []control.Check {
	var all []control.Check
	for _, c := range setup.Companions() {
		check := control.Check{Name: c.Name, State: fine}
		if check.Detail, check.Fix = c.Finding(c.Find(root, searchPath)); check.Fix != "" {
			check.State = warn
		}
		all = append(all, check)
	}
	return all
}

// checkSocket checks whether a process guest can reach its daemon.
func checkSocket(path string) control.Check {
	const name = "socket"
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.Dial("unixpacket", path)
	switch {
	case err == nil:
		c.Close()
		return good(name, path+" answers")
	case errors.Is(err, fs.ErrNotExist):
		return bad(name, path+", which PEGASUS_SOCKET names, doesn't exist", "ask for the domain's name, or start pegasusd; in a virtual machine, unset PEGASUS_SOCKET")
	case errors.Is(err, fs.ErrPermission):
		return bad(name, path+" may not be used by this user", "ask for socket_owner, socket_group or socket_mode of the domain to be changed")
	default:
		return bad(name, err.Error(), "start pegasusd")
	}
}
