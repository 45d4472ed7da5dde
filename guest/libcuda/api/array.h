/* Descriptions of textures and surfaces, which texture objects and texture references share. */
#ifndef PEGASUS_API_ARRAY_H
#define PEGASUS_API_ARRAY_H

#include "core/zz_wire.h"
#include "cuda.h"
#include "object/array.h"

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
/* Reports whether an array's elements can have so many channels. */
bool array_channels_valid(uint32_t n);
/* Returns the texture or surface of a table with an issued handle, or NULL. */
struct texture *texture_find(struct table *table, uint64_t handle);

#endif
