package main

import "strings"

// phrases are what cuGetErrorString says, in our words, where the name alone
// would be poor.
var phrases = map[string]string{
	"CUDA_SUCCESS":                              "no error",
	"CUDA_ERROR_INVALID_VALUE":                  "invalid argument",
	"CUDA_ERROR_NOT_INITIALIZED":                "cuInit was not called in this process",
	"CUDA_ERROR_DEINITIALIZED":                  "the driver is shutting down",
	"CUDA_ERROR_STUB_LIBRARY":                   "a stub library was loaded instead of a driver",
	"CUDA_ERROR_DEVICE_UNAVAILABLE":             "device is in use or unavailable",
	"CUDA_ERROR_NO_DEVICE":                      "no CUDA-capable device is available",
	"CUDA_ERROR_INVALID_DEVICE":                 "invalid device ordinal",
	"CUDA_ERROR_INVALID_IMAGE":                  "kernel image is invalid",
	"CUDA_ERROR_INVALID_CONTEXT":                "no valid context is current",
	"CUDA_ERROR_NO_BINARY_FOR_GPU":              "the image holds no code for this device",
	"CUDA_ERROR_ECC_UNCORRECTABLE":              "uncorrectable memory error",
	"CUDA_ERROR_UNSUPPORTED_LIMIT":              "the device does not support this limit",
	"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED":        "devices cannot access each other's memory",
	"CUDA_ERROR_INVALID_PTX":                    "the PTX code does not compile",
	"CUDA_ERROR_NVLINK_UNCORRECTABLE":           "uncorrectable link error",
	"CUDA_ERROR_JIT_COMPILER_NOT_FOUND":         "PTX compiler not found",
	"CUDA_ERROR_UNSUPPORTED_PTX_VERSION":        "the PTX code is of a newer version than this driver knows",
	"CUDA_ERROR_INVALID_SOURCE":                 "kernel source is invalid",
	"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND": "symbol not found in a shared object",
	"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED":      "a shared object failed to initialise",
	"CUDA_ERROR_OPERATING_SYSTEM":               "an operating system call failed",
	"CUDA_ERROR_INVALID_HANDLE":                 "invalid handle",
	"CUDA_ERROR_NOT_FOUND":                      "name not found",
	"CUDA_ERROR_NOT_READY":                      "not ready yet",
	"CUDA_ERROR_ILLEGAL_ADDRESS":                "a kernel accessed memory that it may not",
	"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES":        "the launch asks for too many resources",
	"CUDA_ERROR_LAUNCH_TIMEOUT":                 "the kernel ran too long and was ended",
	"CUDA_ERROR_CONTEXT_IS_DESTROYED":           "the context was destroyed",
	"CUDA_ERROR_ASSERT":                         "an assertion failed in a kernel",
	"CUDA_ERROR_HARDWARE_STACK_ERROR":           "stack error in a kernel",
	"CUDA_ERROR_INVALID_PC":                     "invalid program counter in a kernel",
	"CUDA_ERROR_MISALIGNED_ADDRESS":             "misaligned address in a kernel",
	"CUDA_ERROR_LAUNCH_FAILED":                  "the kernel failed",
	"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE":   "the cooperative grid does not fit the device at once",
	"CUDA_ERROR_NOT_PERMITTED":                  "operation not permitted",
	"CUDA_ERROR_NOT_SUPPORTED":                  "operation not supported",
	"CUDA_ERROR_SYSTEM_NOT_READY":               "the system is not ready, or its service is not running",
	"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH":         "versions of driver and library do not match",
	"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED":     "not permitted while a stream is captured",
	"CUDA_ERROR_STREAM_CAPTURE_ISOLATION":       "a dependency reaches out of the capture",
	"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":        "the capture would depend on the legacy stream",
	"CUDA_ERROR_CAPTURED_EVENT":                 "the event was last recorded in a capture",
	"CUDA_ERROR_UNKNOWN":                        "unknown error",
}

// phrase is the text of a result.
func phrase(name string) string {
	if p := phrases[name]; p != "" {
		return p
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "CUDA_ERROR_"), "_", " "))
}
