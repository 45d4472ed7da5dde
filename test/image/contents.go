package image

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Contents lists the files of an image or a disk: files of the host, by their name in
// the image, and texts.
type Contents struct {
	names []string
	from  map[string]string
	Texts map[string]string // other files, by their name
	Dirs  []string          // the host's directories that are searched for libraries first
}

// NewContents returns empty contents.
func NewContents() *Contents {
	return &Contents{from: map[string]string{}, Texts: map[string]string{}}
}

// Add adds a file of the host.
func (c *Contents) Add(name, from string) {
	if _, ok := c.from[name]; !ok {
		c.names = append(c.names, name)
		c.from[name] = from
	}
}

const libraryDir = "/lib/x86_64-linux-gnu"

// AddNeeds adds the libraries that the programs and libraries among the contents are
// linked with, all to one directory.
func (c *Contents) AddNeeds() error {
	for i := 0; i < len(c.names); i++ { // grows by each file's needs
		if err := c.needsOf(c.from[c.names[i]]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Contents) needsOf(path string) error {
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
			from, err := findLibrary(filepath.Base(string(name)), slices.Concat(c.Dirs, []string{filepath.Dir(string(name))}))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			c.Add(string(name), from)
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
		from, err := findLibrary(l, slices.Concat(c.Dirs, dirs, []string{libraryDir, filepath.Dir(path)}))
		if err != nil {
			return fmt.Errorf("%s needs %s: %w", path, l, err)
		}
		c.Add(libraryDir+"/"+l, from)
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

// Archive returns the contents as an archive for a kernel, with additional empty
// directories.
func (c *Contents) Archive(dirs ...string) ([]byte, error) {
	var a Archive
	for _, d := range dirs {
		a.Dir(d)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Texts)) {
		a.Data(name, 0o755, []byte(c.Texts[name]))
	}
	for _, name := range c.names {
		if err := a.File(name, c.from[name]); err != nil {
			return nil, err
		}
	}
	return a.Bytes(), nil
}

// Sum returns a hash of the contents.
func (c *Contents) Sum() string {
	h := sha256.New()
	fmt.Fprintln(h, c.Texts)
	for _, name := range c.names {
		st, err := os.Stat(c.from[name])
		if err == nil {
			fmt.Fprintln(h, name, c.from[name], st.Size(), st.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
