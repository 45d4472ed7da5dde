/* Copies that other calls make. */
#ifndef PEGASUS_API_MEMCPY_H
#define PEGASUS_API_MEMCPY_H

#include "cuda.h"

/* As cuMemcpyAsync and cuMemcpy3DAsync, but the source has been read on return. */
CUresult memcpy_reading(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult memcpy_box_reading(const CUDA_MEMCPY3D *c, CUstream stream);

#endif
