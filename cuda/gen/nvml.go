package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// nvmlSpec is NVML: the functions of libnvidia-ml.so.1.
type nvmlSpec struct {
	About, Release string
	Drivers        []driver
	Handles        []string
	Functions      []*nvmlFunction
}

// driver is NVIDIA's first driver that had a CUDA.
type driver struct {
	CUDA int
	Name string
}

func (d *driver) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&d.CUDA, &d.Name})
}

// nvmlFunction is one symbol of libnvidia-ml.so.1. Body is "manual" for a function that guest/nvml
// implements, and empty for a generated one: with Out it returns constants, otherwise
// NVML_ERROR_NOT_SUPPORTED.
type nvmlFunction struct {
	Name   string
	Body   string
	Out    map[string]int64
	Params []param
}

func loadNVML(dir string) (*nvmlSpec, error) {
	s := &nvmlSpec{}
	path := filepath.Join(dir, "nvml.json")
	if err := readJSON(path, s); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, f := range s.Functions {
		switch {
		case seen[f.Name]:
			return nil, fmt.Errorf("%s: %s is there twice", path, f.Name)
		case f.Body != "" && f.Body != bodyManual:
			return nil, fmt.Errorf("%s: %s: no body %q", path, f.Name, f.Body)
		case f.Body == bodyManual && f.Out != nil:
			return nil, fmt.Errorf("%s: %s is manual and has constants", path, f.Name)
		}
		seen[f.Name] = true
		for out := range f.Out {
			if !slices.ContainsFunc(f.Params, func(p param) bool { return p.Name == out && strings.HasSuffix(p.Type, "*") }) {
				return nil, fmt.Errorf("%s: %s has no output %s", path, f.Name, out)
			}
		}
	}
	return s, nil
}

// cType returns the type of a parameter of a generated function. Every enumeration and number of an object is
// an unsigned int in NVML's ABI; structures are opaque.
func (s *nvmlSpec) cType(p param, out bool) string {
	switch {
	case p.Type == "nvmlDevice_t":
		return "nvml_device "
	case out:
		return "unsigned int *"
	case strings.HasSuffix(p.Type, "*") || slices.Contains(s.Handles, p.Type):
		return "const void *"
	case strings.HasPrefix(p.Type, "nvml"):
		return "unsigned int "
	}
	return p.Type + " "
}

func emitNVML(w *writer, s *spec) {
	w.cHeader("The functions of NVML that nothing is behind: each answers constants, or NVML_ERROR_NOT_SUPPORTED.")
	w.f(`#include "nvml.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

`)
	for _, f := range s.NVML.Functions {
		if f.Body == bodyManual {
			continue
		}
		var params []string
		for _, p := range f.Params {
			_, out := f.Out[p.Name]
			params = append(params, s.NVML.cType(p, out)+p.Name)
		}
		if params == nil {
			params = []string{"void"}
		}
		w.f("EXPORT nvml %s(%s)\n{\n", f.Name, strings.Join(params, ", "))
		refusal := "refuse()"
		for _, p := range slices.Backward(f.Params) {
			if p.Type == "nvmlDevice_t" {
				refusal = "refuse_device(" + p.Name + ")"
			}
		}
		if f.Out == nil {
			w.f("\treturn %s;\n}\n\n", refusal)
			continue
		}
		w.f("\tnvml r = %s;\n\tif (r != NVML_NOT_SUPPORTED)\n\t\treturn r;\n", refusal)
		for _, name := range sortedKeys(f.Out) {
			w.f("\tif (!%s)\n\t\treturn NVML_INVALID_ARGUMENT;\n", name)
		}
		for _, name := range sortedKeys(f.Out) {
			w.f("\t*%s = %d;\n", name, f.Out[name])
		}
		w.f("\treturn NVML_SUCCESS;\n}\n\n")
	}
}

func emitNVMLMap(w *writer, s *spec) {
	w.cHeader("Every symbol of NVML up to release " + s.NVML.Release + ".")
	w.f("{\nglobal:\n")
	for _, f := range s.NVML.Functions {
		w.f("\t%s;\n", f.Name)
	}
	w.f("local:\n\t*;\n};\n")
}

func emitReleases(w *writer, s *spec) {
	w.cHeader("Rows of struct release, oldest first.")
	for _, d := range s.NVML.Drivers {
		w.f("{%d, \"%s\"},\n", d.CUDA, d.Name)
	}
}

func emitGoReleases(w *writer, s *spec) {
	w.header("//")
	w.f("\npackage cuda\n\nvar releases = []release{\n")
	for _, d := range s.NVML.Drivers {
		w.f("\t{%d, \"%s\"},\n", d.CUDA, d.Name)
	}
	w.f("}\n")
}
