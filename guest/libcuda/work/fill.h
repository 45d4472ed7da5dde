/* Fills: how the API's arguments become the arguments of a packet. */
#ifndef PEGASUS_WORK_FILL_H
#define PEGASUS_WORK_FILL_H

#include "core/zz_wire.h"
#include "work/box.h"

struct fill {
	CUdeviceptr target;
	uint64_t width, height, pitch; /* width in elements, pitch in bytes */
	uint32_t value, elementSize;
};

/* Returns the packet arguments of a fill. */
struct fill_args fill_args_of(const struct fill *f);
/* Checks a fill and sets *end to its target, unless the fill is empty. */
CUresult fill_check(const struct fill *f, struct copy_endpoint *end);
/* Translates a program's fill description, which may be empty, into packet arguments. */
CUresult fill_of(const CUDA_MEMSET_NODE_PARAMS *p, struct fill_args *args);

#endif
