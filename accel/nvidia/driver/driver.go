// Package driver calls NVIDIA's libcuda, which is loaded at run time: the build needs no part of CUDA.
//
// Each function here is one of the driver's, or a few that belong together, with no further semantics.
//
// Callers: accel/nvidia, which has checked the guest's arguments.
//
// Trust boundary: none; the library is trusted.
package driver

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra -Werror -I${SRCDIR}/../../../guest/include
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"pegasus/cuda"
)

// Handles of the driver's objects.
type (
	Context  = C.CUcontext
	Module   = C.CUmodule
	Function = C.CUfunction
	Stream   = C.CUstream // nil is the legacy default stream
	Event    = C.CUevent
	Array    = C.CUarray
	Physical = C.CUmemGenericAllocationHandle
	// Word is a word that a stream waits for.
	Word = *C.uint
)

// DefaultLibrary is the library that is loaded by default.
const DefaultLibrary = "libcuda.so.1"

// Load loads the library, "" for DefaultLibrary, and initializes it. A process has one library: the first.
func Load(library string) error {
	if library == "" {
		library = DefaultLibrary
	}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if why := C.load_driver(path); why != nil {
		return fmt.Errorf("load NVIDIA's driver library %s: %s", library, strings.TrimPrefix(C.GoString(why), library+": "))
	}
	if r := result(C.call_cuInit(0)); r != cuda.Success {
		return fmt.Errorf("start NVIDIA's driver (%s): %w", library, failed{"cuInit", r})
	}
	return nil
}

// Has reports whether the driver has a function of that name.
func Has(name string) bool {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return C.driver_has(n) != 0
}

// failed is the error of a failed call.
type failed struct {
	call string
	r    cuda.Result
}

func (f failed) Error() string { return f.call + ": " + f.r.String() }
func (f failed) Unwrap() error { return f.r }

func result(r C.CUresult) cuda.Result { return cuda.Result(r) }

func check(call string, r C.CUresult) error {
	if r := result(r); r != cuda.Success {
		return failed{call, r}
	}
	return nil
}

// Version returns the newest CUDA version that the driver supports: 1000*major + 10*minor.
func Version() (int, error) {
	var v C.int
	err := check("cuDriverGetVersion", C.call_cuDriverGetVersion(&v))
	return int(v), err
}

// Count returns the number of devices.
func Count() (int, error) {
	var n C.int
	err := check("cuDeviceGetCount", C.call_cuDeviceGetCount(&n))
	return int(n), err
}

// Describe returns all properties of a device that the driver reports. Attributes unknown to the driver are 0.
func Describe(index int) (d cuda.Device, err error) {
	var dev C.CUdevice
	if err := check("cuDeviceGet", C.call_cuDeviceGet(&dev, C.int(index))); err != nil {
		return d, err
	}
	var text [256]C.char
	if err := check("cuDeviceGetName", C.call_cuDeviceGetName(&text[0], C.int(len(text)), dev)); err != nil {
		return d, err
	}
	d.Name = C.GoString(&text[0])
	if err := check("cuDeviceGetPCIBusId", C.call_cuDeviceGetPCIBusId(&text[0], C.int(len(text)), dev)); err != nil {
		return d, err
	}
	d.PCIBusID = C.GoString(&text[0])
	var uuid C.CUuuid
	if err := check("cuDeviceGetUuid_v2", C.call_cuDeviceGetUuid_v2(&uuid, dev)); err != nil {
		return d, err
	}
	copy(d.UUID[:], unsafe.Slice((*byte)(unsafe.Pointer(&uuid)), len(d.UUID)))
	var total C.size_t
	if err := check("cuDeviceTotalMem_v2", C.call_cuDeviceTotalMem_v2(&total, dev)); err != nil {
		return d, err
	}
	d.TotalMem = uint64(total)
	for a := 1; a < cuda.NumAttributes; a++ {
		var v C.int
		if C.call_cuDeviceGetAttribute(&v, C.CUdevice_attribute(a), dev) == C.CUDA_SUCCESS {
			d.Attributes[a] = int32(v)
		}
	}
	return d, nil
}

// NewContext creates a context on a device.
func NewContext(index int, flags uint32) (c Context, r cuda.Result) {
	var dev C.CUdevice
	if r := result(C.call_cuDeviceGet(&dev, C.int(index))); r != cuda.Success {
		return nil, r
	}
	r = result(C.call_cuCtxCreate_v2(&c, C.uint(flags), dev))
	return c, r
}

// DestroyContext destroys a context with all its objects. No other thread may be using it.
func DestroyContext(c Context) cuda.Result { return result(C.call_cuCtxDestroy_v2(c)) }

// SetLimit sets a CUlimit and returns the value in force.
func SetLimit(c Context, limit uint32, value uint64) (uint64, cuda.Result) {
	if r := result(C.call_cuCtxSetLimit(c, C.CUlimit(limit), C.size_t(value))); r != cuda.Success {
		return 0, r
	}
	return Limit(c, limit)
}

// Limit returns the value of a CUlimit.
func Limit(c Context, limit uint32) (uint64, cuda.Result) {
	var v C.size_t
	r := result(C.call_cuCtxGetLimit(c, &v, C.CUlimit(limit)))
	return uint64(v), r
}

// Unused returns the bytes of the device's memory that are unused.
func Unused(c Context) (uint64, cuda.Result) {
	var left, total C.size_t
	r := result(C.call_cuMemGetInfo_v2(c, &left, &total))
	return uint64(left), r
}

// Alloc allocates device memory.
func Alloc(c Context, bytes uint64) (uint64, cuda.Result) {
	var at C.CUdeviceptr
	r := result(C.call_cuMemAlloc_v2(c, &at, C.size_t(bytes)))
	return uint64(at), r
}

// Free frees device memory. The driver may wait for the device.
func Free(c Context, at uint64) cuda.Result { return result(C.call_cuMemFree_v2(c, C.CUdeviceptr(at))) }

// AllocHost allocates pinned host memory, and returns its device address.
func AllocHost(c Context, bytes uint64) (mem []byte, device uint64, r cuda.Result) {
	const portableAndMapped = C.CU_MEMHOSTALLOC_PORTABLE | C.CU_MEMHOSTALLOC_DEVICEMAP
	var at unsafe.Pointer
	if r := result(C.call_cuMemHostAlloc(c, &at, C.size_t(bytes), portableAndMapped)); r != cuda.Success {
		return nil, 0, r
	}
	var dev C.CUdeviceptr
	if r := result(C.call_cuMemHostGetDevicePointer_v2(c, &dev, at, 0)); r != cuda.Success {
		C.call_cuMemFreeHost(c, at)
		return nil, 0, r
	}
	// Memory of the driver, which is not moved: a slice of it is valid until FreeHost.
	return unsafe.Slice((*byte)(at), bytes), uint64(dev), cuda.Success
}

// FreeHost frees memory of AllocHost.
func FreeHost(c Context, mem []byte) cuda.Result {
	return result(C.call_cuMemFreeHost(c, unsafe.Pointer(unsafe.SliceData(mem))))
}

// Register pins existing memory outside of Go's heap, and returns its device address.
func Register(c Context, mem []byte) (device uint64, r cuda.Result) {
	const portableAndMapped = C.CU_MEMHOSTREGISTER_PORTABLE | C.CU_MEMHOSTREGISTER_DEVICEMAP
	at := unsafe.Pointer(unsafe.SliceData(mem))
	if r := result(C.call_cuMemHostRegister_v2(c, at, C.size_t(len(mem)), portableAndMapped)); r != cuda.Success {
		return 0, r
	}
	var dev C.CUdeviceptr
	if r := result(C.call_cuMemHostGetDevicePointer_v2(c, &dev, at, 0)); r != cuda.Success {
		C.call_cuMemHostUnregister(c, at)
		return 0, r
	}
	return uint64(dev), cuda.Success
}

// Unregister reverts Register.
func Unregister(c Context, mem []byte) cuda.Result {
	return result(C.call_cuMemHostUnregister(c, unsafe.Pointer(unsafe.SliceData(mem))))
}

// Address returns the address of memory outside of Go's heap.
func Address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// ReserveAddresses reserves addresses for device memory, at base if the driver grants that.
func ReserveAddresses(c Context, base, bytes uint64) (uint64, cuda.Result) {
	var at C.CUdeviceptr
	r := result(C.call_cuMemAddressReserve(c, &at, C.size_t(bytes), 0, C.CUdeviceptr(base), 0))
	return uint64(at), r
}

// FreeAddresses releases reserved addresses; nothing may be mapped there.
func FreeAddresses(c Context, base, bytes uint64) cuda.Result {
	return result(C.call_cuMemAddressFree(c, C.CUdeviceptr(base), C.size_t(bytes)))
}

// Granularity returns the unit of sizes and addresses of mapped memory, in bytes.
func Granularity(c Context, index int) (uint64, cuda.Result) {
	var n C.size_t
	r := result(C.device_granularity(c, C.CUdevice(index), &n))
	return uint64(n), r
}

// Map allocates device memory and maps it at reserved addresses.
func Map(c Context, index int, at, bytes uint64) (h Physical, r cuda.Result) {
	r = result(C.map_memory(c, C.CUdevice(index), C.CUdeviceptr(at), C.size_t(bytes), &h))
	return h, r
}

// Unmap removes the mapping and frees the memory.
func Unmap(c Context, at, bytes uint64, h Physical) cuda.Result {
	if r := result(C.call_cuMemUnmap(c, C.CUdeviceptr(at), C.size_t(bytes))); r != cuda.Success {
		return r
	}
	return result(C.call_cuMemRelease(c, h))
}

// CopyIn queues a copy from pinned host memory and returns at once.
func CopyIn(c Context, to uint64, from []byte, s Stream) cuda.Result {
	return result(C.call_cuMemcpyHtoDAsync_v2(c, C.CUdeviceptr(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from)), s))
}

// CopyOut queues a copy to pinned host memory and returns at once.
func CopyOut(c Context, to []byte, from uint64, s Stream) cuda.Result {
	return result(C.call_cuMemcpyDtoHAsync_v2(c, unsafe.Pointer(unsafe.SliceData(to)), C.CUdeviceptr(from), C.size_t(len(to)), s))
}

// CopyWithin copies device memory.
func CopyWithin(c Context, to, from, bytes uint64, s Stream) cuda.Result {
	return result(C.call_cuMemcpyDtoDAsync_v2(c, C.CUdeviceptr(to), C.CUdeviceptr(from), C.size_t(bytes), s))
}

// End is one end of a copied box: pinned host memory outside of Go's heap, an array, or else an address.
type End struct {
	Host          []byte
	Array         Array
	Address       uint64
	X, Y, Z       uint64
	Pitch, Height uint64
}

func (e *End) kind() C.CUmemorytype {
	switch {
	case e.Host != nil:
		return C.CU_MEMORYTYPE_HOST
	case e.Array != nil:
		return C.CU_MEMORYTYPE_ARRAY
	}
	return C.CU_MEMORYTYPE_DEVICE
}

// CopyBox copies a box.
func CopyBox(c Context, dst, src *End, width, height, depth uint64, s Stream) cuda.Result {
	p := C.CUDA_MEMCPY3D{
		srcMemoryType: src.kind(), srcHost: unsafe.Pointer(unsafe.SliceData(src.Host)), srcDevice: C.CUdeviceptr(src.Address), srcArray: src.Array,
		srcXInBytes: C.size_t(src.X), srcY: C.size_t(src.Y), srcZ: C.size_t(src.Z), srcPitch: C.size_t(src.Pitch), srcHeight: C.size_t(src.Height),
		dstMemoryType: dst.kind(), dstHost: unsafe.Pointer(unsafe.SliceData(dst.Host)), dstDevice: C.CUdeviceptr(dst.Address), dstArray: dst.Array,
		dstXInBytes: C.size_t(dst.X), dstY: C.size_t(dst.Y), dstZ: C.size_t(dst.Z), dstPitch: C.size_t(dst.Pitch), dstHeight: C.size_t(dst.Height),
		WidthInBytes: C.size_t(width), Height: C.size_t(height), Depth: C.size_t(depth),
	}
	return result(C.call_cuMemcpy3DAsync_v2(c, &p, s))
}

// Fill sets height rows of width elements of 1, 2 or 4 bytes.
func Fill(c Context, at, pitch uint64, value, size uint32, width, height uint64, s Stream) cuda.Result {
	to, p, w, h := C.CUdeviceptr(at), C.size_t(pitch), C.size_t(width), C.size_t(height)
	var r C.CUresult
	switch {
	case height == 1 && size == 1:
		r = C.call_cuMemsetD8Async(c, to, C.uchar(value), w, s)
	case height == 1 && size == 2:
		r = C.call_cuMemsetD16Async(c, to, C.ushort(value), w, s)
	case height == 1:
		r = C.call_cuMemsetD32Async(c, to, C.uint(value), w, s)
	case size == 1:
		r = C.call_cuMemsetD2D8Async(c, to, p, C.uchar(value), w, h, s)
	case size == 2:
		r = C.call_cuMemsetD2D16Async(c, to, p, C.ushort(value), w, h, s)
	default:
		r = C.call_cuMemsetD2D32Async(c, to, p, C.uint(value), w, h, s)
	}
	return result(r)
}

// NewArray creates an array.
func NewArray(c Context, width, height, depth uint64, format, channels, flags uint32) (a Array, r cuda.Result) {
	d := C.CUDA_ARRAY3D_DESCRIPTOR{
		Width: C.size_t(width), Height: C.size_t(height), Depth: C.size_t(depth),
		Format: C.CUarray_format(format), NumChannels: C.uint(channels), Flags: C.uint(flags),
	}
	r = result(C.call_cuArray3DCreate_v2(c, &a, &d))
	return a, r
}

// FreeArray destroys an array.
func FreeArray(c Context, a Array) cuda.Result { return result(C.call_cuArrayDestroy(c, a)) }

// TextureDesc describes a texture: of an array, or of memory that begins at Address, with a pitch or in one row.
type TextureDesc struct {
	Array                         Array
	Address, Width, Height, Pitch uint64
	Format, Channels              uint32
	AddressMode                   [3]uint32
	FilterMode, Flags             uint32
	BorderColor                   [4]float32
}

// NewTexture creates a texture or a surface, for which only the array is used, and returns the handle for kernels.
func NewTexture(c Context, d *TextureDesc, surface bool) (handle uint64, r cuda.Result) {
	t := C.struct_texture{
		array: d.Array, at: C.CUdeviceptr(d.Address), width: C.size_t(d.Width), height: C.size_t(d.Height), pitch: C.size_t(d.Pitch),
		format: C.uint(d.Format), channels: C.uint(d.Channels),
	}
	for i, m := range d.AddressMode {
		t.as.addressMode[i] = C.CUaddress_mode(m)
	}
	t.as.filterMode, t.as.flags = C.CUfilter_mode(d.FilterMode), C.uint(d.Flags)
	for i, v := range d.BorderColor {
		t.as.borderColor[i] = C.float(v)
	}
	var h C.ulonglong
	r = result(C.make_texture(c, &t, cbool(surface), &h))
	return uint64(h), r
}

// FreeTexture destroys a texture or surface.
func FreeTexture(c Context, handle uint64, surface bool) cuda.Result {
	if surface {
		return result(C.call_cuSurfObjectDestroy(c, C.CUsurfObject(handle)))
	}
	return result(C.call_cuTexObjectDestroy(c, C.CUtexObject(handle)))
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// logBytes is the size of the buffer for the log of the driver's compiler.
const logBytes = 8 << 10

// LoadModule loads a complete image. PTX text has to end in a zero.
func LoadModule(c Context, image []byte) (m Module, log string, r cuda.Result) {
	var text [logBytes]byte
	r = result(C.load_module(c, &m, unsafe.Pointer(unsafe.SliceData(image)), (*C.char)(unsafe.Pointer(&text)), logBytes))
	return m, logText(text[:]), r
}

func logText(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// Object is PTX text to be linked.
type Object struct {
	Name string
	Text []byte // ends in a zero
}

// Link links objects to one image; if only is given, it stops after compiling each.
func Link(c Context, objects []Object, only bool) (image []byte, log string, r cuda.Result) {
	said := (*C.struct_link_log)(C.calloc(1, C.sizeof_struct_link_log))
	defer C.free(unsafe.Pointer(said))
	defer func() { log = C.GoString(&said.text[0]) }()
	var l C.CUlinkState
	if r := result(C.begin_link(c, &l, said)); r != cuda.Success {
		return nil, "", r
	}
	defer C.call_cuLinkDestroy(c, l)
	for _, o := range objects {
		if r := add(c, l, o); r != cuda.Success {
			return nil, "", r
		}
	}
	if only {
		return nil, "", cuda.Success
	}
	var at unsafe.Pointer
	var n C.size_t
	if r := result(C.call_cuLinkComplete(c, l, &at, &n)); r != cuda.Success {
		return nil, "", r
	}
	return bytes.Clone(unsafe.Slice((*byte)(at), n)), "", cuda.Success // the driver's own copy is freed with l
}

func add(c Context, l C.CUlinkState, o Object) cuda.Result {
	name := C.CString(o.Name)
	defer C.free(unsafe.Pointer(name))
	return result(C.call_cuLinkAddData_v2(c, l, C.CU_JIT_INPUT_PTX, unsafe.Pointer(unsafe.SliceData(o.Text)), C.size_t(len(o.Text)), name, 0, nil, nil))
}

// UnloadModule releases a module.
func UnloadModule(c Context, m Module) cuda.Result { return result(C.call_cuModuleUnload(c, m)) }

// Functions returns a module's kernels, with their names. It loads them: a driver that loads lazily reports neither the
// thread limit nor the memory of a kernel that isn't loaded.
func Functions(c Context, m Module) (all []Function, names []string, r cuda.Result) {
	var n C.uint
	if r := result(C.call_cuModuleGetFunctionCount(c, &n, m)); r != cuda.Success || n == 0 {
		return nil, nil, r
	}
	all = make([]Function, n)
	if r := result(C.call_cuModuleEnumerateFunctions(c, &all[0], n, m)); r != cuda.Success {
		return nil, nil, r
	}
	names = make([]string, n)
	for i, f := range all {
		var name *C.char
		if r := result(C.call_cuFuncGetName(c, &name, f)); r != cuda.Success {
			return nil, nil, r
		}
		names[i] = C.GoString(name)
		if r := result(C.call_cuFuncLoad(c, f)); r != cuda.Success && r != cuda.ErrorNotSupported {
			return nil, nil, r
		}
	}
	return all, names, cuda.Success
}

// FunctionOf returns a kernel by its name.
func FunctionOf(c Context, m Module, name string) (f Function, r cuda.Result) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	r = result(C.call_cuModuleGetFunction(c, &f, m, n))
	return f, r
}

// GlobalOf returns the address and size of a variable by its name.
func GlobalOf(c Context, m Module, name string) (at, bytes uint64, r cuda.Result) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	var p C.CUdeviceptr
	var size C.size_t
	r = result(C.call_cuModuleGetGlobal_v2(c, &p, &size, m, n))
	return uint64(p), uint64(size), r
}

// Params returns the layout of a kernel's parameters. It returns cuda.ErrorNotSupported if the driver can't report it.
func Params(c Context, f Function) (all []cuda.ParamLayout, r cuda.Result) {
	for {
		var at, n C.size_t
		r := result(C.call_cuFuncGetParamInfo(c, f, C.size_t(len(all)), &at, &n))
		if r == cuda.ErrorInvalidValue { // past the last parameter
			return all, cuda.Success
		}
		if r != cuda.Success {
			return nil, r
		}
		all = append(all, cuda.ParamLayout{Offset: uint32(at), Size: uint32(n)})
	}
}

// FunctionAttribute returns a CUfunction_attribute, 0 if the driver doesn't support it.
func FunctionAttribute(c Context, f Function, a int) int32 {
	var v C.int
	if C.call_cuFuncGetAttribute(c, &v, C.CUfunction_attribute(a), f) != C.CUDA_SUCCESS {
		return 0
	}
	return int32(v)
}

// SetFunctionAttribute sets an attribute of a function.
func SetFunctionAttribute(c Context, f Function, a int, v int32) cuda.Result {
	return result(C.call_cuFuncSetAttribute(c, f, C.CUfunction_attribute(a), C.int(v)))
}

// Launch is a launch of a kernel with a block of parameters; a cooperative launch needs their offsets.
type Launch struct {
	Function    Function
	Grid, Block [3]uint32
	Shared      uint32
	Cooperative bool
	Cluster     [3]uint32 // sides; zeros: none
	Params      []byte
	Offsets     []uint32
}

// Run queues the launch. The parameters have been read when it returns.
func (l *Launch) Run(c Context, s Stream) cuda.Result {
	var grid, block, cluster [3]C.uint
	for i := range grid {
		grid[i], block[i], cluster[i] = C.uint(l.Grid[i]), C.uint(l.Block[i]), C.uint(l.Cluster[i])
	}
	cooperative := C.int(0)
	if l.Cooperative {
		cooperative = 1
	}
	return result(C.launch(c, l.Function, &grid[0], &block[0], &cluster[0], C.uint(l.Shared), s, cooperative,
		(*C.char)(unsafe.Pointer(unsafe.SliceData(l.Params))), C.size_t(len(l.Params)),
		(*C.uint)(unsafe.Pointer(unsafe.SliceData(l.Offsets))), C.uint(len(l.Offsets))))
}

// NewStream creates a stream.
func NewStream(c Context, flags uint32, priority int32) (s Stream, r cuda.Result) {
	r = result(C.call_cuStreamCreateWithPriority(c, &s, C.uint(flags), C.int(priority)))
	return s, r
}

// DestroyStream releases a stream when its work has ended.
func DestroyStream(c Context, s Stream) cuda.Result { return result(C.call_cuStreamDestroy_v2(c, s)) }

// SyncStream waits for a stream.
func SyncStream(c Context, s Stream) cuda.Result { return result(C.call_cuStreamSynchronize(c, s)) }

// Wait holds a stream until an event has completed.
func Wait(c Context, s Stream, e Event) cuda.Result {
	return result(C.call_cuStreamWaitEvent(c, s, e, 0))
}

// WordBytes is the size of a Word.
const WordBytes = 4

// WordAt returns a word in pinned memory, which must stay allocated.
func WordAt(mem []byte) Word { return (Word)(unsafe.Pointer(&mem[0])) }

// Reset prepares a word that no stream waits for, for the next wait.
func Reset(w Word) { *w = 0 }

// Hold blocks a stream until the word is released. The device itself waits if it can, by polling the word's address;
// else a thread of the driver does, and there may be one such thread for all streams.
func Hold(c Context, s Stream, w Word, at uint64, byDevice bool) cuda.Result {
	if byDevice {
		return result(C.call_cuStreamWaitValue32_v2(c, s, C.CUdeviceptr(at), 1, C.CU_STREAM_WAIT_VALUE_GEQ))
	}
	return result(C.hold_stream(c, s, w))
}

// Release ends the wait for a word.
func Release(w Word) { C.release_word(w) }

// NewEvent creates an event that measures time, with a blocking wait.
func NewEvent(c Context) (e Event, r cuda.Result) {
	r = result(C.call_cuEventCreate(c, &e, C.CU_EVENT_BLOCKING_SYNC))
	return e, r
}

// DestroyEvent releases an event.
func DestroyEvent(c Context, e Event) cuda.Result { return result(C.call_cuEventDestroy_v2(c, e)) }

// Record records an event in a stream.
func Record(c Context, e Event, s Stream) cuda.Result { return result(C.call_cuEventRecord(c, e, s)) }

// Query returns cuda.ErrorNotReady until the event has completed.
func Query(c Context, e Event) cuda.Result { return result(C.call_cuEventQuery(c, e)) }

// Poll polls for up to ns whether an event has completed; it returns cuda.ErrorNotReady if it hasn't.
func Poll(c Context, e Event, ns int64) cuda.Result {
	return result(C.poll_event(c, e, C.longlong(ns)))
}

// Await blocks, asleep, until end has completed, and returns how long after base it did, and, unless begin is nil,
// begin did: in milliseconds. base may be nil.
func Await(c Context, base, begin, end Event) (began, ended float32, r cuda.Result) {
	var from, to C.float
	r = result(C.await_event(c, base, begin, end, &from, &to))
	return float32(from), float32(to), r
}
