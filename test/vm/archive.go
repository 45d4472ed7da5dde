package vm

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// An archive is files in the form in which a kernel unpacks its first file
// system: cpio "newc". Several, one behind the other, are one file system.
type archive struct {
	out   bytes.Buffer
	dirs  []string
	files int
}

const (
	typeDir  = 0o040000
	typeFile = 0o100000
)

func (a *archive) entry(name string, mode uint32, data []byte) {
	a.files++
	fmt.Fprintf(&a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.files, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.out.WriteString(name)
	a.out.WriteByte(0)
	a.pad()
	a.out.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.out.Len()%4 != 0 {
		a.out.WriteByte(0)
	}
}

// dir makes a directory, and those above it.
func (a *archive) dir(name string) {
	name = strings.Trim(name, "/")
	if name == "" || name == "." || slices.Contains(a.dirs, name) {
		return
	}
	a.dir(path.Dir(name))
	a.dirs = append(a.dirs, name)
	a.entry(name, typeDir|0o755, nil)
}

// data makes a file.
func (a *archive) data(name string, mode uint32, data []byte) {
	name = strings.TrimPrefix(name, "/")
	a.dir(path.Dir(name))
	a.entry(name, typeFile|mode, data)
}

// file makes a file of one of the host's.
func (a *archive) file(name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.data(name, 0o755, data)
	return nil
}

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.entry("TRAILER!!!", 0, nil)
	for a.out.Len()%512 != 0 {
		a.out.WriteByte(0)
	}
	return a.out.Bytes()
}
