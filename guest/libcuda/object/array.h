/* The tables of arrays, mipmapped arrays, textures and surfaces. */
#ifndef PEGASUS_OBJECT_ARRAY_H
#define PEGASUS_OBJECT_ARRAY_H

#include "object/object.h"

/* Returns the bytes of one channel, 0 for an unsupported format. */
uint32_t array_format_bytes(CUarray_format format);

static inline struct array *array_find(CUarray handle) { return handle_find(&arrays, (uint64_t)(uintptr_t)handle); }

#endif
