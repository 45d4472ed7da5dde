#ifndef PEGASUS_ARRAY_H
#define PEGASUS_ARRAY_H

#include "work/copy.h"
#include "core/zz_wire.h"

/* Sets *end to the copy endpoint for a box of an array; fails unless the box lies within the array. */
CUresult array_end(CUarray handle, uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t height, uint64_t depth,
	struct end *end);

/* Returns the bytes of one channel, 0 for an unsupported format. */
uint32_t array_format_bytes(CUarray_format format);

/* Values of CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT and _TEXTURE_PITCH_ALIGNMENT, for linear textures. */
enum { TEXTURE_ALIGNMENT = 512, PITCH_ALIGNMENT = 32 };

/*
 * Translate the descriptions of a texture object into the arguments of its packet; they check only the fields that the
 * host does not check.
 */
CUresult describe_resource(const CUDA_RESOURCE_DESC *d, struct texture_create_args *args);
CUresult describe_texture(const CUDA_TEXTURE_DESC *t, struct texture_create_args *args);
/* Checks that kernels may store to the array and sets *id to its id. */
CUresult check_surface(CUarray handle, uint64_t *id);

#endif
