#ifndef PEGASUS_ARRAY_H
#define PEGASUS_ARRAY_H

#include "copy.h"
#include "zz_wire.h"

/* The end of a copy that is a box of an array; the box has to lie within it. */
CUresult array_end(CUarray handle, uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t height, uint64_t depth,
	struct end *end);

/* Bytes of one channel, 0 for a format that is not supported. */
uint32_t array_format_bytes(CUarray_format format);

/* Of linear textures: CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT and _TEXTURE_PITCH_ALIGNMENT. */
enum { TEXTURE_ALIGNMENT = 512, PITCH_ALIGNMENT = 32 };

/* What a texture object is to be, checked as far as the host doesn't check it. */
CUresult describe_resource(const CUDA_RESOURCE_DESC *d, struct texture_create_args *args);
CUresult describe_texture(const CUDA_TEXTURE_DESC *t, struct texture_create_args *args);
/* Whether kernels may store to an array. */
CUresult check_surface(CUarray handle, uint64_t *id);

#endif
