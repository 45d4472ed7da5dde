//go:build !amd64 || !linux

package code

import (
	"errors"
	"unsafe"
)

func call(uintptr, unsafe.Pointer) { panic("no machine code for this processor") }

func mapTwice(int) ([]byte, *byte, error) {
	return nil, nil, errors.New("no machine code for this processor or system")
}
