//go:build cgo

package driver

// #include "calls.h"
import "C"

import (
	"unsafe"

	"pegasus/cuda"
)

// CreateMemory allocates physical memory of a device.
func CreateMemory(c Context, index int, bytes uint64) (h Physical, r cuda.Result) {
	r = result(C.create_memory(c, C.CUdevice(index), C.size_t(bytes), &h))
	return h, r
}

// MapMemory maps a part of such memory at reserved addresses, without access.
func MapMemory(c Context, at, bytes, offset uint64, h Physical) cuda.Result {
	return result(C.call_cuMemMap(c, C.CUdeviceptr(at), C.size_t(bytes), C.size_t(offset), h, 0))
}

// SetAccess sets the device's access to mapped memory.
func SetAccess(c Context, index int, at, bytes uint64, flags uint32) cuda.Result {
	return result(C.set_access(c, C.CUdevice(index), C.CUdeviceptr(at), C.size_t(bytes), C.uint(flags)))
}

// UnmapMemory removes a mapping; the memory keeps its contents.
func UnmapMemory(c Context, at, bytes uint64) cuda.Result {
	return result(C.call_cuMemUnmap(c, C.CUdeviceptr(at), C.size_t(bytes)))
}

// ReleaseMemory drops the reference to such memory. It is freed when it is mapped nowhere.
func ReleaseMemory(c Context, h Physical) cuda.Result { return result(C.call_cuMemRelease(c, h)) }

// WaitValue blocks a stream until the word of 4 or 8 bytes at an address meets a condition (CUstreamWaitValue_flags).
func WaitValue(c Context, s Stream, at, value uint64, bytes, condition uint32) cuda.Result {
	if bytes == 8 {
		return result(C.call_cuStreamWaitValue64_v2(c, s, C.CUdeviceptr(at), C.cuuint64_t(value), C.uint(condition)))
	}
	return result(C.call_cuStreamWaitValue32_v2(c, s, C.CUdeviceptr(at), C.cuuint32_t(value), C.uint(condition)))
}

// WriteValue writes such a word in a stream's order.
func WriteValue(c Context, s Stream, at, value uint64, bytes uint32) cuda.Result {
	if bytes == 8 {
		return result(C.call_cuStreamWriteValue64_v2(c, s, C.CUdeviceptr(at), C.cuuint64_t(value), 0))
	}
	return result(C.call_cuStreamWriteValue32_v2(c, s, C.CUdeviceptr(at), C.cuuint32_t(value), 0))
}

// MakeShareable makes memory that is created from now on exportable to other processes.
func MakeShareable() { C.make_shareable(1) }

// ExportMemory returns a descriptor by which another process can import memory. The caller owns it.
func ExportMemory(c Context, h Physical) (fd int, r cuda.Result) {
	var out C.int
	r = result(C.call_cuMemExportToShareableHandle(c, unsafe.Pointer(&out), h, C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
	return int(out), r
}

// ImportMemory imports memory of another process. The caller keeps ownership of the descriptor.
func ImportMemory(c Context, fd int) (h Physical, r cuda.Result) {
	r = result(C.import_memory(c, &h, C.int(fd)))
	return h, r
}
