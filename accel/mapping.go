package accel

import (
	"os"

	"pegasus/cuda"
)

// Access is what work may do with mapped memory (CUmemAccess_flags).
type Access uint32

const (
	NoAccess  Access = 0
	ReadOnly  Access = 1
	ReadWrite Access = 3
)

// Mapper is the optional ability of a Device to have memory without addresses, and to
// put it at addresses that were reserved before. Whatever the arguments are, what is
// not so is refused with an error; sizes, offsets and addresses are multiples of
// MapGranule. All of it ends with the device.
type Mapper interface {
	// MapGranule is the unit of all this, a power of two; 0 if the device can't after all.
	MapGranule() uint64
	// ReserveRange keeps addresses free, at wish if that can be had. The alignment is 0 or a power of two.
	ReserveRange(bytes, alignment, wish uint64) (addr uint64, r cuda.Result)
	// FreeRange ends that. Nothing may be mapped there.
	FreeRange(addr uint64) cuda.Result
	// CreateMemory makes zeroed memory, which counts against the quota from now on.
	CreateMemory(bytes uint64) (Memory, cuda.Result)
	// AwaitFree waits for one of the frees that are on their way, if a lack of memory may be due to them. It returns
	// false at once if there is none, or if it could depend on the guest, which in turn may be waiting for us.
	AwaitFree() bool
	// Map puts bytes of memory from an offset on at an address. Nothing can use them yet.
	Map(addr, bytes, offset uint64, m Memory) cuda.Result
	// Unmap ends whole mappings, at once: work that uses them fails.
	Unmap(addr, bytes uint64) cuda.Result
	// SetAccess says what work may do with whole mappings.
	SetAccess(addr, bytes uint64, a Access) cuda.Result
}

// Memory is memory without an address.
type Memory interface {
	// Release gives it up, once. It goes when it is mapped nowhere.
	Release()
}

// Importer is the optional ability of a Mapper to map memory that processes of a domain
// share: a part of a file, which counts already.
type Importer interface {
	// ImportMemory makes it memory; gone is called when it was given up and is mapped
	// nowhere. The file stays the caller's.
	ImportMemory(file *os.File, offset, bytes uint64, gone func()) (Memory, cuda.Result)
}
