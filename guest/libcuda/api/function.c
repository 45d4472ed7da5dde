/* Functions: queries, and the settings that a program can change. */
#include "core/zz_impl.h"
#include "image/library.h"

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
