/* Boxes: descriptions of copies, and how the API's arguments become them. */
#ifndef PEGASUS_WORK_BOX_H
#define PEGASUS_WORK_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"

/* Memory space of a copy endpoint. */
enum where { AT_HOST, AT_DEVICE, AT_ARENA, AT_ARRAY };

struct copy_endpoint {
	enum where where;
	uint64_t address;      /* host pointer, device address, arena offset or array id */
	uint64_t pitch, height; /* bytes per row, rows per slice; unused for arrays */
	uint64_t x, y, z;      /* arrays only, x in bytes */
	bool sync;             /* synchronous operations on this memory return after they complete (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) */
};

/* A box of width bytes x height rows x depth slices. */
struct box {
	struct copy_endpoint dst, src;
	uint64_t width, height, depth;
};

/*
 * Sets *end to the endpoint for bytes at a plain address. deviceOnly rejects memory that was not allocated through
 * CUDA.
 */
CUresult endpoint_from_address(uint64_t address, uint64_t bytes, bool deviceOnly, struct copy_endpoint *end);

/*
 * Reports whether the host memory at an endpoint is mapped and accessible. The program may pass any number as an
 * address, and that must not crash the program.
 */
bool endpoint_usable(const struct copy_endpoint *end, uint64_t bytes, bool write);

/* Sets *end to the copy endpoint for a box of an array; fails unless the box lies within the array. */
CUresult endpoint_from_array(CUarray handle, uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t height, uint64_t depth,
	struct copy_endpoint *end);

/* Translates a program's copy description into a box; the endpoints of an empty box are not checked. */
CUresult box_of(const CUDA_MEMCPY3D *c, struct box *box);
/* Returns a copy description for a box. */
CUDA_MEMCPY3D copy_of(const struct box *box);

#endif
