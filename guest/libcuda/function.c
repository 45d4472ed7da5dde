/*
 * What is known of a function: attributes from the module's layout, and the few
 * settings that a program can change.
 */
#include <string.h>

#include "device.h"
#include "module.h"
#include "zz_impl.h"

CUresult pg_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f = function_find(handle);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = f->facts.maxThreads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = f->facts.staticShared;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = f->facts.constBytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = f->facts.localBytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = f->facts.registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = f->facts.ptxVersion;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = f->facts.binaryVersion;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = f->maxDynamicShared;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = f->carveout;
		break;
	default: /* caching of loads; clusters, which this capability lacks */
		*value = 0;
	}
	return CUDA_SUCCESS;
}

/* The most dynamic shared memory that a block of f can ever have. */
static int64_t shared_limit(const struct function *f)
{
	int64_t optin = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	int64_t plain = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
	return (optin > plain ? optin : plain) - f->facts.staticShared;
}

CUresult pg_cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct function *f = function_find(handle);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > shared_limit(f))
			return CUDA_ERROR_INVALID_VALUE;
		f->maxDynamicShared = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		f->carveout = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	if (!function_find(handle))
		return CUDA_ERROR_INVALID_HANDLE;
	return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	if (!function_find(handle))
		return CUDA_ERROR_INVALID_HANDLE;
	return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuFuncGetModule(CUmodule *module, CUfunction handle)
{
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f = function_find(handle);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	*module = (CUmodule)(uintptr_t)f->module;
	return CUDA_SUCCESS;
}

/* The name lives as long as the module. */
CUresult pg_cuFuncGetName(const char **name, CUfunction handle)
{
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f = function_find(handle);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = f->name;
	return CUDA_SUCCESS;
}

CUresult pg_cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	if (!offset)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f = function_hold(handle);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	bool there = index < f->facts.paramCount;
	if (there) {
		*offset = f->params[index].offset;
		if (size)
			*size = f->params[index].size;
	}
	function_release(f);
	return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
