// Package image makes the boot images of test machines: archives of files that a kernel unpacks
// into memory, and kernels and programs from Debian's packages.
package image

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// An Archive is a set of files in cpio's "newc" format, from which a kernel unpacks its initial
// file system. Several concatenated archives make one file system.
type Archive struct {
	out   bytes.Buffer
	dirs  []string
	files int
}

const (
	typeDir  = 0o040000
	typeFile = 0o100000
)

func (a *Archive) entry(name string, mode uint32, data []byte) {
	a.files++
	fmt.Fprintf(&a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.files, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.out.WriteString(name)
	a.out.WriteByte(0)
	a.pad()
	a.out.Write(data)
	a.pad()
}

func (a *Archive) pad() {
	for a.out.Len()%4 != 0 {
		a.out.WriteByte(0)
	}
}

// Dir adds a directory and its parents.
func (a *Archive) Dir(name string) {
	name = strings.Trim(name, "/")
	if name == "" || name == "." || slices.Contains(a.dirs, name) {
		return
	}
	a.Dir(path.Dir(name))
	a.dirs = append(a.dirs, name)
	a.entry(name, typeDir|0o755, nil)
}

// Data adds a file with these contents.
func (a *Archive) Data(name string, mode uint32, data []byte) {
	name = strings.TrimPrefix(name, "/")
	a.Dir(path.Dir(name))
	a.entry(name, typeFile|mode, data)
}

// File adds a copy of a file of the host.
func (a *Archive) File(name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.Data(name, 0o755, data)
	return nil
}

// Bytes ends the archive and returns it.
func (a *Archive) Bytes() []byte {
	a.entry("TRAILER!!!", 0, nil)
	for a.out.Len()%512 != 0 {
		a.out.WriteByte(0)
	}
	return a.out.Bytes()
}
