package driver

// #include "calls.h"
import "C"

import (
	"unsafe"

	"pegasus/cuda"
)

// TensorMap encodes the description of a tensor in the format of the device's kernels. The rank and the form were
// checked.
func TensorMap(c Context, a *cuda.TensorMapArgs) (m [16]uint64, r cuda.Result) {
	t := C.struct_tensor{
		form: C.uint(a.Form), address: C.ulonglong(a.Address), _type: C.uint(a.Type), rank: C.uint(a.Rank), interleave: C.uint(a.Interleave), swizzle: C.uint(a.Swizzle),
		promotion: C.uint(a.Promotion), fill: C.uint(a.Fill), channels: C.uint(a.Channels), pixels: C.uint(a.Pixels),
		dims: *(*[5]C.ulonglong)(unsafe.Pointer(&a.Dims)), strides: *(*[4]C.ulonglong)(unsafe.Pointer(&a.Strides)), box: *(*[5]C.uint)(unsafe.Pointer(&a.Box)),
		steps: *(*[5]C.uint)(unsafe.Pointer(&a.Steps)), lower: *(*[3]C.int)(unsafe.Pointer(&a.Lower)), upper: *(*[3]C.int)(unsafe.Pointer(&a.Upper)),
		old: *(*[16]C.ulonglong)(unsafe.Pointer(&a.Old)),
	}
	r = result(C.tensor_map(c, &t, (*C.ulonglong)(unsafe.Pointer(&m))))
	return m, r
}
