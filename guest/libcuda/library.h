/*
 * Libraries: images that belong to no context. Each context gets a module of them when something there is first needed.
 * Their kernels, too, are of no context: wherever a function is asked for, a kernel stands for its function in the context
 * that the call is about.
 */
#ifndef PEGASUS_LIBRARY_H
#define PEGASUS_LIBRARY_H

#include "module.h"

/* The function that a kernel is in a context, by handle: loads the library there if need be. Not a kernel: 400. */
CUresult kernel_function(uint64_t kernel, uint64_t context, CUfunction *function);

/* The function of a handle, which is no kernel's: a kernel has calls of its own for what cuFunc... do. */
static inline CUresult function_only(CUfunction handle, struct function **f)
{
	*f = function_find(handle);
	return LIKELY(*f) ? context_error((*f)->wireContext) : CUDA_ERROR_INVALID_HANDLE;
}

/* The function of a handle; of a kernel, that of the current context. */
static inline CUresult function_of(CUfunction handle, struct function **f)
{
	if (UNLIKELY(!function_find(handle))) {
		CUresult r = kernel_function((uint64_t)(uintptr_t)handle, 0, &handle);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return function_only(handle, f);
}

/* Holds the function of a handle; of a kernel, that of a context. */
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
