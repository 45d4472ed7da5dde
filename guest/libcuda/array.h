#ifndef PEGASUS_ARRAY_H
#define PEGASUS_ARRAY_H

#include "copy.h"

/* The end of a copy that is a box of an array; the box has to lie within it. */
CUresult array_end(CUarray handle, uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t height, uint64_t depth,
	struct end *end);

/* Bytes of one channel, 0 for a format that is not supported. */
uint32_t array_format_bytes(CUarray_format format);

#endif
