// Package setup installs the files and settings that a virtual machine needs so that its CUDA programs find the host's
// accelerators.
//
// Callers: `pegasus-guest install`, as root of the machine, or on the root directory of a machine's image.
//
// Trust boundary: it trusts root. It writes only its own files, and leaves any file alone that it doesn't recognise as
// its own.
package setup

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Paths in a machine.
const (
	Program     = "/usr/local/bin/pegasus-guest"
	LibraryDir  = "/usr/local/lib/pegasus"
	Library     = LibraryDir + "/" + LibraryName
	LibraryName = "libcuda.so.1" // the library that programs load
	Monitor     = LibraryDir + "/" + MonitorName
	MonitorName = "libnvidia-ml.so.1" // the library that GPU monitoring tools load

	loaderFile = "/etc/ld.so.conf.d/pegasus.conf"
	cdiFile    = "/etc/cdi/pegasus.yaml"
	unitDir    = "/etc/systemd/system"
)

// Embedded is libcuda.so.1, and EmbeddedMonitor libnvidia-ml.so.1. Their files in this directory are empty: `make`
// substitutes the built libraries at compile time.
var (
	//go:embed libcuda.so.1
	Embedded []byte
	//go:embed libnvidia-ml.so.1
	EmbeddedMonitor []byte
)

// Setup describes an installation.
type Setup struct {
	Root    string // the machine's root directory; empty: this machine
	Self    string // path of pegasus-guest, to be installed; unused by Uninstall
	Library []byte // contents of the library
	Monitor []byte // contents of the GPU monitoring library; empty: none

	// Beside leaves the dynamic loader's configuration unchanged: programs find the library by LD_LIBRARY_PATH only,
	// and others keep their libraries.
	Beside bool
	DryRun bool      // print the actions without doing them
	Out    io.Writer // for the list of actions
}

// item is a file or, with a target, a link.
type item struct {
	path   string
	mode   fs.FileMode
	data   []byte
	target string
}

// items returns all installed items, in their order.
func (s *Setup) items() ([]item, error) {
	self, err := os.ReadFile(s.Self)
	if err != nil {
		return nil, err
	}
	all := files(self, s.Library, s.Monitor)
	if len(s.Monitor) == 0 {
		all = slices.DeleteFunc(all, func(i item) bool { return i.path == Monitor })
	}
	if s.Beside {
		all = slices.DeleteFunc(all, func(i item) bool { return i.path == loaderFile })
	}
	if s.hasSystemd() {
		all = append(all, units()...)
	}
	return all, nil
}

// files returns the items of every machine.
func files(program, library, monitor []byte) []item {
	return []item{
		{path: Program, mode: 0o755, data: program},
		{path: Library, mode: 0o644, data: library},
		{path: LibraryDir + "/libcuda.so", target: LibraryName},
		{path: Monitor, mode: 0o644, data: monitor},
		{path: loaderFile, mode: 0o644, data: []byte(loaderText)},
		{path: cdiFile, mode: 0o644, data: []byte(cdiText(len(monitor) > 0))},
	}
}

// Install installs Pegasus in the machine. Existing files of the same contents stay, so it can be run again at any
// time.
func (s *Setup) Install() error {
	if err := s.check(); err != nil {
		return err
	}
	all, err := s.items()
	if err != nil {
		return err
	}
	for _, i := range all {
		if err := s.mayTouch(i); err != nil {
			return err
		}
	}
	changed := false
	for _, i := range all {
		wrote, err := s.write(i)
		if err != nil {
			return err
		}
		changed = changed || wrote
	}
	if s.Beside {
		if err := s.remove(item{path: loaderFile}); err != nil {
			return err
		}
	}
	return s.settle(changed)
}

// Uninstall removes the items that Install wrote. Running programs continue until the agent ends.
func (s *Setup) Uninstall() error {
	all := append(files(nil, nil, nil), units()...)
	for _, i := range all {
		if err := s.mayTouch(i); err != nil {
			return err
		}
	}
	if err := s.stop(); err != nil {
		return err
	}
	for _, i := range all {
		if err := s.remove(i); err != nil {
			return err
		}
	}
	if !s.DryRun {
		os.Remove(s.at(LibraryDir)) // unless it contains other files
	}
	return s.loaderCache()
}

func (s *Setup) at(path string) string { return filepath.Join("/", s.Root, path) }

func (s *Setup) say(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }

// check rejects an installation that cannot work.
func (s *Setup) check() error {
	switch {
	case len(s.Library) == 0:
		return fmt.Errorf("this pegasus-guest was built without %s in it (`make` puts it there): give --library FILE", LibraryName)
	case !isLibrary(s.Library):
		return fmt.Errorf("the library isn't Pegasus' %s", LibraryName)
	}
	if other := s.otherLibrary(); other != "" && !s.Beside {
		return fmt.Errorf("this machine has another driver's %s, %s: remove its package, or keep it by --beside-driver; "+
			"then programs find Pegasus' by LD_LIBRARY_PATH=%s", LibraryName, other, LibraryDir)
	}
	return nil
}

// mayTouch rejects the replacement or removal of a file that pegasus-guest has not written.
func (s *Setup) mayTouch(i item) error {
	path := s.at(i.path)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if i.target != "" {
		if to, err := os.Readlink(path); err == nil && to == i.target {
			return nil
		}
	} else if info.Mode().IsRegular() {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if len(data) == 0 || bytes.Contains(data, []byte(written)) || isLibrary(data) {
			return nil // the program contains the mark, too
		}
	}
	return fmt.Errorf("%s isn't from pegasus-guest: move it away", path)
}

// write creates an item, and reports whether it was missing or different.
func (s *Setup) write(i item) (wrote bool, err error) {
	path := s.at(i.path)
	if s.isThere(i, path) {
		s.say("is there      %s", path)
		return false, nil
	}
	if s.DryRun {
		s.say("would write   %s", path)
		return true, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	// Processes that have the old file open or mapped keep it.
	making := path + ".new"
	os.Remove(making)
	if i.target != "" {
		err = os.Symlink(i.target, making)
	} else if err = os.WriteFile(making, i.data, i.mode); err == nil {
		err = os.Chmod(making, i.mode) // independent of the umask
	}
	if err == nil {
		err = os.Rename(making, path)
	}
	if err != nil {
		os.Remove(making)
		return false, err
	}
	s.say("wrote         %s", path)
	return true, nil
}

func (s *Setup) isThere(i item, path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if i.target != "" {
		to, err := os.Readlink(path)
		return err == nil && to == i.target
	}
	data, err := os.ReadFile(path)
	return err == nil && info.Mode() == i.mode && slices.Equal(data, i.data)
}

// remove removes an item, if it exists.
func (s *Setup) remove(i item) error {
	path := s.at(i.path)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if s.DryRun {
		s.say("would remove  %s", path)
		return nil
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	s.say("removed       %s", path)
	return nil
}
