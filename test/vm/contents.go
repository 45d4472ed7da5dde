package vm

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// contents is what goes into an image or onto a disk: the host's files by their name in
// it, and others.
type contents struct {
	names []string
	from  map[string]string
	texts map[string]string
}

func newContents() *contents {
	return &contents{from: map[string]string{}, texts: map[string]string{}}
}

func (c *contents) add(name, from string) {
	if _, ok := c.from[name]; !ok {
		c.names = append(c.names, name)
		c.from[name] = from
	}
}

const libraryDir = "/lib/x86_64-linux-gnu"

// addNeeds adds the libraries that the programs and libraries among the contents are
// linked with, all to one directory.
func (c *contents) addNeeds() error {
	for i := 0; i < len(c.names); i++ { // grows by what each needs
		if err := c.addNeedsOf(c.from[c.names[i]]); err != nil {
			return err
		}
	}
	return nil
}

func (c *contents) addNeedsOf(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w; run `make build` and `make deps`", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz-1)
			if _, err := p.ReadAt(name, 0); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			c.add(string(name), string(name))
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	dirs, err := f.DynString(elf.DT_RUNPATH)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, l := range libraries {
		if strings.HasPrefix(l, "ld-linux") || l == "libcuda.so.1" { // that is installed later
			continue
		}
		from, err := findLibrary(l, append(dirs, libraryDir, filepath.Dir(path)))
		if err != nil {
			return fmt.Errorf("%s needs %s: %w", path, l, err)
		}
		c.add(libraryDir+"/"+l, from)
	}
	return nil
}

func findLibrary(name string, dirs []string) (path string, err error) {
	for _, dir := range dirs {
		path = filepath.Join(dir, name)
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", err
}

// sum tells contents apart.
func (c *contents) sum() string {
	h := sha256.New()
	fmt.Fprintln(h, c.texts)
	for _, name := range c.names {
		st, err := os.Stat(c.from[name])
		if err == nil {
			fmt.Fprintln(h, name, c.from[name], st.Size(), st.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
