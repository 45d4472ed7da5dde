/* Functions: attributes from the module's layout, and the settings that a program can change. */
#include <string.h>

#include "core/device.h"
#include "core/zz_impl.h"
#include "image/library.h"

enum hint function_hint(CUfunction_attribute attribute)
{
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return HINT_CARVEOUT;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: /* the host permits the cluster sizes that a launch needs */
		return HINT_NON_PORTABLE_CLUSTERS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return HINT_CLUSTER_POLICY;
	default:
		return NO_HINT;
	}
}

CUresult function_attribute(const struct layout_function *facts, CUfunction_attribute attribute, int32_t maxDynamicShared, int *value)
{
	if ((unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = facts->maxThreads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = facts->staticShared;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = facts->constBytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = facts->localBytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = facts->registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = facts->ptxVersion;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = facts->binaryVersion;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = maxDynamicShared;
		break;
	default: /* caching of loads; required cluster sizes, which the function itself declares */
		*value = 0;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	struct function *f;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = function_only(handle, &f);
	enum hint hint = function_hint(attribute);
	if (r != CUDA_SUCCESS || hint == NO_HINT)
		return r == CUDA_SUCCESS ? function_attribute(&f->facts, attribute, f->maxDynamicShared, value) : r;
	*value = f->hints[hint];
	return CUDA_SUCCESS;
}

/* Returns the largest dynamic shared memory that a block can have. */
static int64_t shared_limit(const struct layout_function *facts, int device)
{
	int64_t optin = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	int64_t plain = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
	return (optin > plain ? optin : plain) - facts->staticShared;
}

CUresult function_check_attribute(const struct layout_function *facts, int device, CUfunction_attribute attribute, int value)
{
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return value < 0 || value > shared_limit(facts, device) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return value < 0 || !device_attribute(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct function *f;
	CUresult r = function_only(handle, &f);
	if (r != CUDA_SUCCESS || (r = function_check_attribute(&f->facts, f->device, attribute, value)) != CUDA_SUCCESS)
		return r;
	enum hint hint = function_hint(attribute);
	if (hint == NO_HINT) {
		f->dynamicSet = true;
		f->maxDynamicShared = value;
	} else {
		f->hintSet[hint] = true;
		f->hints[hint] = value;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	struct function *f;
	CUresult r = function_only(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	struct function *f;
	CUresult r = function_only(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuFuncGetModule(CUmodule *module, CUfunction handle)
{
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f;
	CUresult r = function_only(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	*module = (CUmodule)(uintptr_t)f->module;
	return CUDA_SUCCESS;
}

/* The name is valid as long as the module. */
CUresult pg_cuFuncGetName(const char **name, CUfunction handle)
{
	if (!name || !handle)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f;
	CUresult r = function_only(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	*name = f->name;
	return CUDA_SUCCESS;
}

CUresult pg_cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	if (!offset)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f;
	if (!(f = function_hold(handle)))
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = context_error(f->wireContext);
	bool there = index < f->facts.paramCount;
	if (there) {
		*offset = f->params[index].offset;
		if (size)
			*size = f->params[index].size;
	}
	function_release(f);
	return r != CUDA_SUCCESS || there ? r : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuFuncGetParamCount(CUfunction handle, size_t *count)
{
	struct function *f;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = function_only(handle, &f);
	if (r == CUDA_SUCCESS)
		*count = f->facts.paramCount;
	return r;
}

/* A module is loaded with all its functions, and a kernel's function belongs to a module. */
CUresult pg_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	struct function *f;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = function_of(handle, &f);
	if (r == CUDA_SUCCESS)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return r;
}

CUresult pg_cuFuncLoad(CUfunction handle)
{
	struct function *f;
	return function_of(handle, &f);
}
