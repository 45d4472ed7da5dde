/*
 * Libraries: images that belong to no context. A context loads its module of a library on first use. Kernels belong to
 * no context either: a call that expects a function also accepts a kernel, which stands for its function in the context
 * of the call.
 */
#ifndef PEGASUS_IMAGE_LIBRARY_H
#define PEGASUS_IMAGE_LIBRARY_H

#include "image/module.h"
#include "object/context.h"

/*
 * Sets *function to the kernel's function in a context, loading the library there if necessary;
 * CUDA_ERROR_INVALID_HANDLE if the handle is not a kernel's.
 */
CUresult kernel_function(uint64_t kernel, uint64_t context, CUfunction *function);

/* Looks up a function but no kernel: kernels have counterparts of their own for the cuFunc... calls. */
static inline CUresult function_only(CUfunction handle, struct function **f)
{
	*f = function_find(handle);
	return LIKELY(*f) ? context_error((*f)->wireContext) : CUDA_ERROR_INVALID_HANDLE;
}

/* Looks up a function; a kernel's handle yields its function in the current context. */
static inline CUresult function_of(CUfunction handle, struct function **f)
{
	if (UNLIKELY(!function_find(handle))) {
		CUresult r = kernel_function((uint64_t)(uintptr_t)handle, 0, &handle);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return function_only(handle, f);
}

/* Holds a function; a kernel's handle yields its function in the given context. */
static inline CUresult function_take(CUfunction handle, uint64_t context, struct function **f)
{
	*f = function_hold(handle);
	if (LIKELY(*f))
		return CUDA_SUCCESS;
	CUresult r = kernel_function((uint64_t)(uintptr_t)handle, context, &handle);
	if (r != CUDA_SUCCESS)
		return r;
	*f = function_hold(handle);
	return *f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#endif
