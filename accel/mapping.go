package accel

import (
	"os"

	"pegasus/cuda"
)

// Access is the permitted access of work to mapped memory (CUmemAccess_flags).
type Access uint32

const (
	NoAccess  Access = 0
	ReadOnly  Access = 1
	ReadWrite Access = 3
)

// Mapper is the optional ability of a Device to have memory without addresses, and to map it at addresses reserved
// earlier. Every invalid argument is refused with an error; sizes, offsets and addresses are multiples of MapGranule.
// Closing the device releases everything.
type Mapper interface {
	// MapGranule returns the granularity in bytes, a power of two; 0 if the device does not support mapping.
	MapGranule() uint64
	// ReserveRange reserves an address range, at wish if that is free. The alignment is 0 or a power of two.
	ReserveRange(bytes, alignment, wish uint64) (addr uint64, r cuda.Result)
	// FreeRange releases a reserved range. Nothing may be mapped there.
	FreeRange(addr uint64) cuda.Result
	// CreateMemory allocates zeroed memory, which counts against the quota from now on.
	CreateMemory(bytes uint64) (Memory, cuda.Result)
	// AwaitFree blocks until one of the pending frees completes, if they may be the cause of an out-of-memory error. It
	// returns false at once if none is pending, or if its completion could depend on the guest, which in turn may be
	// waiting for the caller.
	AwaitFree() bool
	// Map maps bytes of memory from an offset on at an address. Work cannot access them before SetAccess.
	Map(addr, bytes, offset uint64, m Memory) cuda.Result
	// Unmap removes whole mappings at once; work that uses them fails.
	Unmap(addr, bytes uint64) cuda.Result
	// SetAccess sets the access of work to whole mappings.
	SetAccess(addr, bytes uint64, a Access) cuda.Result
}

// Memory is physical memory without an address.
type Memory interface {
	// Release drops the caller's reference, once. The memory is freed when it is mapped nowhere.
	Release()
}

// Importer is the optional ability of a Mapper to map memory that processes of a domain share: a part of a file, which
// is accounted for already.
type Importer interface {
	// ImportMemory wraps the part of the file as Memory; gone is called when it is released and mapped nowhere. The
	// caller keeps ownership of the file.
	ImportMemory(file *os.File, offset, bytes uint64, gone func()) (Memory, cuda.Result)
}
