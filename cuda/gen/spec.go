package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"
)

// spec is the generator's input.
type spec struct {
	Functions []*function
	// Extensions are exported, too, but are not CUDA's: they are neither in its header nor on the coverage
	// page.
	Extensions []*function
	Resolver   []resolverName
	Enums      map[string]*enum
	Defines    map[string]int64
	Structs    map[string]*structure
	Ops        []*op
	NVML       *nvmlSpec
	Objects    map[string]*object // that accessors find
	Texts      map[string]string  // of results, by the name without CUDA_ERROR_

	bySymbol map[string]*function
}

// function is one exported symbol.
type function struct {
	Name      string
	Symbol    string
	Stream    string // ptds, ptsz or empty
	Since     int
	Tier      int
	FFnvcodec string `json:"ffnvcodec"`
	Cudart    bool
	Debian    []string
	Params    []param
	Filters   bool `json:"ffmpegFiltersCall"`

	decision *decision
	results  []int64 // documented, in order
}

type param struct {
	Name, Type, Class string
	Dir, Len          string // in, out or inout; number of objects that it points to: another parameter or a rule
}

// resolverName is one name that cuGetProcAddress resolves.
type resolverName struct {
	Name      string
	Legacy    []resolverRow
	PerThread []resolverRow
}

// resolverRow is the symbol that a name resolves to from a requested version on.
type resolverRow struct {
	Version int
	Symbol  string
}

func (r *resolverRow) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.Version, &r.Symbol})
}

type enum struct {
	Values  map[string]int64
	Typedef string
}

type structure struct {
	Kind        string
	Size, Align int
	Typedefs    []string
	Fields      []field
}

type field struct {
	Name         string
	Offset, Size int
	Type         string
}

func loadSpec(dir string) (*spec, error) {
	s := &spec{bySymbol: map[string]*function{}}
	var api struct {
		Functions      []*function
		GetProcAddress []resolverName
	}
	var extensions struct {
		About     string
		Functions []*function
	}
	var enums struct {
		Enums   map[string]*enum
		Defines map[string]int64
	}
	var structs struct{ Structs map[string]*structure }
	err := errors.Join(
		readJSON(filepath.Join(dir, "driver_api.json"), &api),
		readJSON(filepath.Join(dir, "extensions.json"), &extensions),
		readJSON(filepath.Join(dir, "enums.json"), &enums),
		readJSON(filepath.Join(dir, "structs.json"), &structs),
	)
	if err != nil {
		return nil, err
	}
	s.Functions, s.Resolver, s.Extensions = api.Functions, api.GetProcAddress, extensions.Functions
	s.Enums, s.Defines, s.Structs = enums.Enums, enums.Defines, structs.Structs
	for _, f := range s.exported() {
		s.bySymbol[f.Symbol] = f
	}
	if s.NVML, err = loadNVML(dir); err != nil {
		return nil, err
	}
	if s.Ops, err = loadWire(filepath.Join(dir, "wire.toml")); err != nil {
		return nil, err
	}
	if err := loadOverlay(dir, s); err != nil {
		return nil, err
	}
	if err := loadTexts(dir, s); err != nil {
		return nil, err
	}
	if err := loadResults(dir, s); err != nil {
		return nil, err
	}
	return s, checkRefusals(s)
}

// exported returns the symbols that the library exports.
func (s *spec) exported() []*function { return append(slices.Clip(s.Functions), s.Extensions...) }

// resolvable returns the names that cuGetProcAddress resolves.
func (s *spec) resolvable() []resolverName {
	all := slices.Clip(s.Resolver)
	for _, f := range s.Extensions {
		all = append(all, resolverName{Name: f.Name, Legacy: []resolverRow{{f.Since, f.Symbol}}})
	}
	return all
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readTOML returns an error for keys that v does not name.
func readTOML(path string, v any) error {
	md, err := toml.DecodeFile(path, v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if extra := md.Undecoded(); len(extra) > 0 {
		return fmt.Errorf("%s: unknown key %s", path, extra[0])
	}
	return nil
}
