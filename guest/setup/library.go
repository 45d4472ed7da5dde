package setup

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"slices"
	"strings"
)

// IsOurs reports whether a file is Pegasus's libcuda.so.1, by the name of the environment variable for its socket.
func IsOurs(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return ours(f)
}

func isLibrary(data []byte) bool {
	yes, err := ours(bytes.NewReader(data))
	return err == nil && yes
}

func ours(r io.ReaderAt) (bool, error) {
	e, err := elf.NewFile(r)
	if err != nil {
		return false, err
	}
	section := e.Section(".rodata")
	if section == nil || e.Type != elf.ET_DYN {
		return false, nil
	}
	data, err := section.Data()
	if err != nil {
		return false, err
	}
	return slices.Contains(strings.Split(string(data), "\x00"), "PEGASUS_SOCKET"), nil
}
