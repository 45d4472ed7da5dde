package configs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
)

// source is one of the files of a configuration.
type source struct {
	name  string
	lines lines
	tree  map[string]any
}

// at returns the position of a key, or of its table if the key is missing.
func (s *source) at(table, key string) string {
	if n := s.lines.of(table, key); n > 0 {
		return fmt.Sprintf("%s:%d", s.name, n)
	}
	return s.name
}

// DropIns returns the files that belong to the configuration file at path, sorted by name: those in the
// directory path.d with names that end in ".toml" and don't begin with a dot.
func DropIns(path string) ([]string, error) {
	dir := path + ".d"
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := trusted(dir); err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".toml") && !strings.HasPrefix(name, ".") {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

// trusted returns an error if users other than root and the current one can put files into a directory.
func trusted(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid != 0 && int(s.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: users other than root and the daemon's can write there; chown and chmod it (0755), or give a configuration elsewhere", dir)
	}
	return nil
}

// Exists reports whether there is a configuration at path: the file, or a drop-in.
func Exists(path string) bool {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	files, err := DropIns(path)
	return err != nil || len(files) > 0
}

// Load reads and checks the file at path and its drop-ins, which together are one configuration. The file may
// be missing if there are drop-ins. Mistakes in the files are returned as Errors; a file that can't be read
// gives the error of reading it.
func Load(path string, opt Options) (*Config, error) {
	dropIns, err := DropIns(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var texts []fileText
	for i, file := range append([]string{path}, dropIns...) {
		bytes, err := readConfig(file, i > 0)
		if i == 0 && len(dropIns) > 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		texts = append(texts, fileText{file, bytes})
	}
	return parseAll(texts, opt)
}

// readConfig reads at most as much of a file as Parse accepts. A drop-in must be a regular file: reading any
// other kind may never end.
func readConfig(path string, dropIn bool) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && dropIn && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// merge adds a table of one file to its counterpart from other files. A key may occur in only one of them.
func (p *parser) merge(t *table, keys map[string]any, from *source) {
	if t.keys == nil {
		t.keys, t.from = map[string]any{}, map[string]*source{}
	}
	for _, key := range sortedKeys(keys) {
		was, ok := t.keys[key]
		switch {
		case !ok:
			t.keys[key], t.from[key] = keys[key], from
		case !reflect.DeepEqual(was, keys[key]):
			p.fail(table{path: t.path, label: t.label, src: from}, key, keys[key],
				fmt.Errorf("is %s at %s: a key has one value in all files of a configuration", spell(was), t.from[key].at(t.path, key)))
		}
	}
}

// sort orders the mistakes by file and line.
func (p *parser) sort() {
	order := map[string]int{}
	for i, s := range p.sources {
		order[s.name] = i
	}
	slices.SortStableFunc(p.errs, func(a, b *Error) int {
		if d := order[a.File] - order[b.File]; d != 0 {
			return d
		}
		return a.Line - b.Line
	})
}
