// Package kernels contains the benchmark kernels: CUDA C sources and the PTX that clang generates from them. The C
// programs of guest/bench embed the PTX, and so does this package, for tests in Go that need real kernels.
package kernels

import (
	"embed"
	"io/fs"
	"strings"
)

//go:generate ./generate.sh

//go:embed zz_*.ptx
var files embed.FS

// Names lists the modules, such as "matmul", in alphabetical order.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // the files are part of this binary
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(e.Name(), "zz_"), ".ptx"))
	}
	return names
}

// PTX returns the text of a module. It panics if there is none of that name.
func PTX(name string) []byte {
	text, err := files.ReadFile("zz_" + name + ".ptx")
	if err != nil {
		panic(err)
	}
	return text
}
