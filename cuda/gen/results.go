package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// documented is the contents of results.toml.
type documented struct {
	Common, Deferred []string
	Argument         map[string][]string // by class of parameter
	Function         []*documentedRow
}

// documentedRow is the manual's results of some functions.
type documentedRow struct {
	Names, Only, More []string
	Deferred          bool
}

// loadResults gives every function its documented results.
func loadResults(dir string, s *spec) error {
	path := filepath.Join(dir, "results.toml")
	var d documented
	if err := readTOML(path, &d); err != nil {
		return err
	}
	rows, err := d.byName(s)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	known := map[string]bool{}
	for _, f := range s.Functions {
		known[f.Name] = true
		names := []string{"NOT_SUPPORTED", "NOT_INITIALIZED", "DEINITIALIZED"}
		if f.kind(s) != kindStub {
			row := rows[f.Name]
			if row == nil {
				return fmt.Errorf("%s: %s: implemented, and has no row", path, f.Name)
			}
			names = d.results(row, f)
		}
		for _, name := range names {
			n, err := resultNumber(s, name)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", path, f.Name, err)
			}
			f.results = append(f.results, n)
		}
		slices.Sort(f.results)
		f.results = slices.Compact(f.results)
	}
	for _, name := range sortedKeys(rows) {
		if !known[name] {
			return fmt.Errorf("%s: %s: no such function", path, name)
		}
	}
	return nil
}

func (d *documented) byName(s *spec) (map[string]*documentedRow, error) {
	rows := map[string]*documentedRow{}
	for _, row := range d.Function {
		if len(row.Only) > 0 && (len(row.More) > 0 || row.Deferred) {
			return nil, fmt.Errorf("%v: only goes with nothing else", row.Names)
		}
		for _, name := range row.Names {
			if rows[name] != nil {
				return nil, fmt.Errorf("%s: has two rows", name)
			}
			rows[name] = row
		}
	}
	for class := range d.Argument {
		if !strings.Contains(" handle device address32 ", " "+class+" ") {
			return nil, fmt.Errorf("argument %q", class)
		}
	}
	return rows, nil
}

// results returns the names of the results of f.
func (d *documented) results(row *documentedRow, f *function) []string {
	if len(row.Only) > 0 {
		return row.Only
	}
	names := slices.Concat(d.Common, row.More)
	if row.Deferred {
		names = append(names, d.Deferred...)
	}
	for _, p := range f.Params {
		switch {
		case p.Class == "handle", p.Class == "handle64":
			names = append(names, d.Argument["handle"]...)
		case p.Type == "CUdeviceptr_v1 *":
			names = append(names, d.Argument["address32"]...)
		case p.Class == "device":
			names = append(names, d.Argument["device"]...)
		}
	}
	return names
}

func resultNumber(s *spec, name string) (int64, error) {
	values := s.Enums["cudaError_enum"].Values
	if n, ok := values["CUDA_ERROR_"+name]; ok {
		return n, nil
	}
	if n, ok := values["CUDA_"+name]; ok {
		return n, nil
	}
	return 0, fmt.Errorf("no result %q", name)
}
