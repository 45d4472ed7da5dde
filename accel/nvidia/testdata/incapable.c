/* A driver for tests that can less than our own library: it neither maps memory nor waits for words. */
#define __CUDA_API_VERSION_INTERNAL
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>

__attribute__((visibility("default"))) CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice d)
{
	if (a == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED || a == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) {
		*value = 0;
		return CUDA_SUCCESS;
	}
	return ((__typeof__(&cuDeviceGetAttribute))dlsym(RTLD_NEXT, "cuDeviceGetAttribute"))(value, a, d);
}
