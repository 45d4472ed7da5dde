#ifndef PEGASUS_COPY_H
#define PEGASUS_COPY_H

#include "stream.h"

/* Where one end of a copy lies, once it is known. */
enum where { AT_HOST, AT_DEVICE, AT_ARENA, AT_ARRAY };

struct end {
	enum where where;
	uint64_t address;      /* host pointer, device address, arena offset, or array id */
	uint64_t pitch, height; /* bytes a row, rows a slice; not for arrays */
	uint64_t x, y, z;      /* arrays only, x in bytes */
	bool sync;             /* the program wants synchronous operations on it to be complete when they return */
};

/* A box of width bytes x height rows x depth slices. */
struct box {
	struct end dst, src;
	uint64_t width, height, depth;
};

/* What end a plain address is: bytes from it on are used. deviceOnly refuses memory that the program did not get from CUDA. */
CUresult end_linear(uint64_t address, uint64_t bytes, bool deviceOnly, struct end *end);

/*
 * Whether host memory at an end is there at all. Where the API takes a number for an address,
 * it may be any number, and must not crash the program.
 */
bool end_usable(const struct end *end, uint64_t bytes, bool write);

/* Whether the same holds for all that is done in a place's context. */
bool place_syncs(const struct place *place);

/*
 * Does it. On return a pageable source has been read, and a pageable target is
 * complete; wait says whether everything else is to be complete, too.
 */
CUresult copy_box(const struct place *place, const struct box *box, bool wait);

/* As cuMemcpyAsync and cuMemcpy3DAsync, but the source has been read on return. */
CUresult memcpy_reading(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult memcpy_box_reading(const CUDA_MEMCPY3D *c, CUstream stream);

/* What a program describes as a copy; of nothing, its ends are not looked at. */
CUresult box_of(const CUDA_MEMCPY3D *c, struct box *box);
/* A copy that describes a box. */
CUDA_MEMCPY3D copy_of(const struct box *box);

/* Copies the rows of a box between its end in host memory and packed bytes. */
void box_gather(const struct box *box, uint8_t *packed);
void box_scatter(const struct box *box, const uint8_t *packed);
/* Copies within host memory. */
void box_move(const struct box *box);
/* A box with one end in the arena, packed, instead of host memory: as it travels. */
struct copy_args box_staged(const struct box *box, uint64_t offset);

struct fill_args;
/* What a program describes as a fill, which may be of nothing. */
CUresult fill_of(const CUDA_MEMSET_NODE_PARAMS *p, struct fill_args *args);

#endif
