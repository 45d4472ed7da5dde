package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"pegasus/backend/control"
	"pegasus/guest/setup"
)

const libraryName = setup.LibraryName

// loader is the dynamic loader of glibc, which our library needs.
const loader = "/lib64/ld-linux-x86-64.so.2"

var (
	loaded   = regexp.MustCompile(`(?m)^\s*\S+ => (.*) \(0x[0-9a-f]+\)$`)
	unloaded = regexp.MustCompile(`cannot be preloaded \((.*)\)`)
	missing  = regexp.MustCompile(`version .(\S+)' not found`)
)

// checkLibrary checks whether programs load our library, and not a driver's. It runs the loader itself, which
// implements the search.
func checkLibrary(library, searchPath string) control.Check {
	const name = "library"
	cmd := exec.Command(loader, "--preload", library, "--list", findLibc())
	cmd.Env = []string{"LD_LIBRARY_PATH=" + searchPath, "LC_ALL=C"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); errors.Is(err, fs.ErrNotExist) {
		return bad(name, loader+" doesn't exist", "use a system with glibc, 2.34 or newer: Pegasus' library needs it")
	}
	var path string
	for _, m := range loaded.FindAllStringSubmatch(out.String(), -1) {
		if filepath.Base(m[1]) == library {
			path = m[1]
		}
	}
	if path == "" {
		return notLoaded(name, library, searchPath, errs.String())
	}
	ours, err := setup.IsOurs(path)
	switch {
	case err != nil:
		return bad(name, fmt.Sprintf("%s, which programs load, can't be read: %v", path, err), installIt)
	case !ours && slices.Contains(filepath.SplitList(searchPath), filepath.Dir(path)):
		return bad(name, path+" isn't Pegasus', and programs load it first, by LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH, or put the directory of Pegasus' library before others: "+setup.LibraryDir)
	case !ours:
		return bad(name, path+" isn't Pegasus', and programs load it first", "remove the package of that driver, or put the directory of Pegasus' library into LD_LIBRARY_PATH: "+setup.LibraryDir)
	}
	if m := missing.FindStringSubmatch(errs.String()); m != nil {
		return bad(name, fmt.Sprintf("%s is Pegasus' and can't be loaded: this system has no %s", path, m[1]), "use a newer system: glibc 2.34, or build the library on this one")
	}
	return good(name, path+" is Pegasus', and programs load it first")
}

// findLibc returns glibc's file, which stands for a program: without a cache, as in many containers, the
// loader wouldn't find it by its name.
func findLibc() string {
	const libc = "libc.so.6"
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		if path := filepath.Join(dir, libc); exists(path) {
			return path
		}
	}
	return libc
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const installIt = "run `pegasus-guest install` as root; for a program that isn't in a virtual machine, `pegasus run -- PROGRAM`"

func notLoaded(name, library, searchPath, said string) control.Check {
	m := unloaded.FindStringSubmatch(said)
	if m != nil && !strings.HasPrefix(m[1], "cannot open shared object file") {
		return bad(name, fmt.Sprintf("a %s can't be loaded: %s", library, m[1]), installIt)
	}
	if exists(setup.Library) && searchPath == "" {
		return bad(name, "the loader doesn't find "+setup.Library, "run `ldconfig` as root; where another driver was to stay, set LD_LIBRARY_PATH="+setup.LibraryDir)
	}
	return bad(name, "the loader finds no "+library, installIt)
}
