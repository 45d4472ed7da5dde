package tests

import (
	"debug/elf"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// layers are the directories of the library, lowest first: a file uses symbols and headers of its own layer and of
// lower ones only.
var layers = []string{"core", "object", "image", "work", "graph", "api"}

// circleMost bounds the number of files of a layer that depend on each other in a circle.
const circleMost = 6

// object is the symbol table of one file of the library. Names are paths without
// the extension, such as core/ring.
type object struct {
	name            string
	defined, needed []string
}

func (o object) layer() int { return slices.Index(layers, filepath.Dir(o.name)) }

// objects returns the objects of the library by name. It compiles them if make has not.
func objects(t *testing.T) map[string]object {
	t.Helper()
	dir, err := compileObjects()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for _, path := range sources() {
		name := objectName(path)
		all[name] = readObject(t, name, filepath.Join(dir, name+".o"))
	}
	return all
}

// compileObjects compiles each file of the library by itself, and returns the folder of the objects.
var compileObjects = sync.OnceValues(func() (dir string, err error) {
	if made := os.Getenv("PEGASUS_BUILD"); made != "" {
		return filepath.Join(made, "guest/obj"), nil
	}
	dir = filepath.Join(scratch, "objects")
	for _, layer := range layers {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, layer), 0o755))
	}
	for _, path := range sources() {
		err = errors.Join(err, gcc(append(slices.Clone(warnings), "-O0", "-fPIC", "-fvisibility=hidden", "-c", path, "-o", filepath.Join(dir, objectName(path)+".o"))...))
	}
	return dir, err
})

func objectName(path string) string {
	return filepath.Join(filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".c"))
}

func readObject(t *testing.T, name, path string) object {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	o := object{name: name}
	for _, s := range symbols {
		switch {
		case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
		case s.Section == elf.SHN_UNDEF:
			o.needed = append(o.needed, s.Name)
		default:
			o.defined = append(o.defined, s.Name)
		}
	}
	return o
}

// arrows maps each object to the objects that it takes symbols from, and these to the symbols.
func arrows(all map[string]object) map[string]map[string][]string {
	owner := map[string]string{}
	for name, o := range all {
		for _, s := range o.defined {
			owner[s] = name
		}
	}
	from := map[string]map[string][]string{}
	for name, o := range all {
		from[name] = map[string][]string{}
		for _, s := range o.needed {
			if to := owner[s]; to != "" && to != name {
				from[name][to] = append(from[name][to], s)
			}
		}
	}
	return from
}

// circles returns the strongly connected components of more than one object, by Tarjan's algorithm.
func circles(from map[string]map[string][]string) [][]string {
	var found [][]string
	var stack []string
	index, low, open := map[string]int{}, map[string]int{}, map[string]bool{}
	var visit func(n string)
	visit = func(n string) {
		index[n] = len(index)
		low[n] = index[n]
		stack = append(stack, n)
		open[n] = true
		for _, m := range slices.Sorted(maps.Keys(from[n])) {
			if _, seen := index[m]; !seen {
				visit(m)
				low[n] = min(low[n], low[m])
			} else if open[m] {
				low[n] = min(low[n], index[m])
			}
		}
		if low[n] != index[n] {
			return
		}
		at := slices.Index(stack, n)
		if circle := slices.Sorted(slices.Values(stack[at:])); len(circle) > 1 {
			found = append(found, circle)
		}
		for _, m := range stack[at:] {
			open[m] = false
		}
		stack = stack[:at]
	}
	for _, n := range slices.Sorted(maps.Keys(from)) {
		if _, seen := index[n]; !seen {
			visit(n)
		}
	}
	return found
}

func TestLayers(t *testing.T) {
	all := objects(t)
	from := arrows(all)
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if all[name].layer() < 0 {
			t.Errorf("%s.c is in no layer; the layers are %s", name, strings.Join(layers, ", "))
		}
		for to, symbols := range from[name] {
			if all[to].layer() > all[name].layer() {
				t.Errorf("%s.c uses %s of %s.c, which is of a higher layer", name, strings.Join(symbols, ", "), to)
			}
		}
	}
	found := circles(from)
	for _, circle := range found {
		t.Logf("circle of %d files: %s", len(circle), strings.Join(circle, ", "))
		inOne := !slices.ContainsFunc(circle, func(n string) bool { return filepath.Dir(n) != filepath.Dir(circle[0]) })
		if !inOne || len(circle) > circleMost {
			t.Errorf("%d files depend on each other; want at most %d, of one layer: %s", len(circle), circleMost, strings.Join(circle, ", "))
		}
	}
	t.Logf("%d files, %d circles", len(all), len(found))
}

var includeLine = regexp.MustCompile(`(?m)^#include "([a-z]+)/([a-z_]+\.h)"`)

func TestLayersOfHeaders(t *testing.T) {
	paths, err := filepath.Glob(librarySource + "/*/*.[ch]")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files of the library: %v", err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range includeLine.FindAllStringSubmatch(string(text), -1) {
			if slices.Index(layers, m[1]) > slices.Index(layers, filepath.Dir(name)) {
				t.Errorf("%s includes %s/%s, which is of a higher layer", name, m[1], m[2])
			}
		}
	}
}

func TestEachFileHasItsHeader(t *testing.T) {
	for _, o := range objects(t) {
		generated := strings.HasPrefix(filepath.Base(o.name), "zz_")
		shared := slices.ContainsFunc(o.defined, func(s string) bool { return !strings.HasPrefix(s, "pg_") })
		if _, err := os.Stat(filepath.Join(librarySource, o.name+".h")); err != nil && shared && !generated {
			t.Errorf("%s.c defines %s, and has no header", o.name, strings.Join(o.defined, ", "))
		}
	}
}
