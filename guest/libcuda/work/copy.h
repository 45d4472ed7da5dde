#ifndef PEGASUS_COPY_H
#define PEGASUS_COPY_H

#include "object/stream.h"

/* Memory space of a copy endpoint. */
enum where { AT_HOST, AT_DEVICE, AT_ARENA, AT_ARRAY };

struct end {
	enum where where;
	uint64_t address;      /* host pointer, device address, arena offset or array id */
	uint64_t pitch, height; /* bytes per row, rows per slice; unused for arrays */
	uint64_t x, y, z;      /* arrays only, x in bytes */
	bool sync;             /* synchronous operations on this memory return after they complete (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) */
};

/* A box of width bytes x height rows x depth slices. */
struct box {
	struct end dst, src;
	uint64_t width, height, depth;
};

/*
 * Sets *end to the endpoint for bytes at a plain address. deviceOnly rejects memory that was not allocated through
 * CUDA.
 */
CUresult end_linear(uint64_t address, uint64_t bytes, bool deviceOnly, struct end *end);

/*
 * Reports whether the host memory at an endpoint is mapped and accessible. The program may pass any number as an
 * address, and that must not crash the program.
 */
bool end_usable(const struct end *end, uint64_t bytes, bool write);

/*
 * Reports whether the context of a stream reference has synchronous memory operations for all memory
 * (CU_CTX_SYNC_MEMOPS).
 */
bool place_syncs(const struct place *place);

/*
 * Runs the copy. On return a pageable source has been read and a pageable target is complete; with wait the whole copy
 * is complete.
 */
CUresult copy_box(const struct place *place, const struct box *box, bool wait);

/* As cuMemcpyAsync and cuMemcpy3DAsync, but the source has been read on return. */
CUresult memcpy_reading(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult memcpy_box_reading(const CUDA_MEMCPY3D *c, CUstream stream);

/* Translates a program's copy description into a box; the endpoints of an empty box are not checked. */
CUresult box_of(const CUDA_MEMCPY3D *c, struct box *box);
/* Returns a copy description for a box. */
CUDA_MEMCPY3D copy_of(const struct box *box);

/* Copy the rows of a box between its endpoint in host memory and a packed buffer. */
void box_gather(const struct box *box, uint8_t *packed);
void box_scatter(const struct box *box, const uint8_t *packed);
/* Copies a box within host memory. */
void box_move(const struct box *box);
/* Returns the packet arguments of a copy whose host endpoint is replaced by packed bytes at an arena offset. */
struct copy_args box_staged(const struct box *box, uint64_t offset);

struct fill_args;
/* Translates a program's fill description, which may be empty, into packet arguments. */
CUresult fill_of(const CUDA_MEMSET_NODE_PARAMS *p, struct fill_args *args);

#endif
