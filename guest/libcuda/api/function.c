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
