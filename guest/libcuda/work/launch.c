/*
 * Checks and packing of kernel launches. Errors in the configuration are returned at once, as a driver does. Parameters
 * are packed according to the layout of the module: the library reads exactly the declared sizes.
 */
#include "work/launch.h"

#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "object/context.h"
#include "work/occupancy.h"

/* The software accelerator's limit for a block, in bytes: docs/software-accelerator.md. */
enum { MOST_LOCAL = 64 << 20 };

/*
 * More threads than the kernel declares (.maxntid, .reqntid) are an invalid value; more than its registers or local
 * memory allow are too many resources: the results of an H200.
 */
static CUresult too_many(const struct function *f, uint64_t threads)
{
	uint64_t registers = threads * (uint64_t)f->facts.registers, local = threads * (uint64_t)f->facts.localBytes;
	bool scarce = registers > (uint64_t)device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) || local > MOST_LOCAL;
	return scarce ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_shape(const struct function *f, const uint32_t grid[3], const uint32_t block[3])
{
	uint64_t threads = 1;
	for (int i = 0; i < 3; i++) {
		uint32_t gridMost = (uint32_t)device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
		uint32_t blockMost = (uint32_t)device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
		if (grid[i] == 0 || block[i] == 0 || grid[i] > gridMost || block[i] > blockMost)
			return CUDA_ERROR_INVALID_VALUE;
		threads *= block[i];
	}
	if (threads > (uint64_t)device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > (uint64_t)f->facts.maxThreads)
		return too_many(f, threads);
	const int32_t *only = f->limits.required;
	if (only[0] && ((int32_t)block[0] != only[0] || (int32_t)block[1] != only[1] || (int32_t)block[2] != only[2]))
		return CUDA_ERROR_INVALID_VALUE;
	return f->limits.refusal > 0 ? (CUresult)f->limits.refusal : CUDA_SUCCESS;
}

static CUresult check_shared(const struct function *f, uint32_t bytes)
{
	int64_t most = f->maxDynamicShared;
	return bytes > most ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult gather(const struct function *f, void **values, uint8_t *block)
{
	if (f->facts.paramCount > 0 && !values)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < f->facts.paramCount; i++) {
		const struct layout_param *p = &f->params[i];
		if (UNLIKELY(!values[i]))
			return CUDA_ERROR_INVALID_VALUE;
		if (LIKELY(p->size == 8))
			memcpy(block + p->offset, values[i], 8);
		else if (p->size == 4)
			memcpy(block + p->offset, values[i], 4);
		else
			memcpy(block + p->offset, values[i], p->size);
	}
	return CUDA_SUCCESS;
}

/* Parameters in the other form: a list of tagged values with one packed block. It may be padded, but not too short. */
static CUresult find_block(const struct function *f, void **extra, const void **block)
{
	const void *bytes = NULL;
	const size_t *size = NULL;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			bytes = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	uint32_t need = f->facts.paramBytes;
	if (need > 0 && (!size || *size < need || !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*block = bytes;
	return CUDA_SUCCESS;
}

/* All blocks of a cooperative launch have to be resident on the device at once. */
static CUresult check_cooperative(const struct function *f, const struct launch_args *shape)
{
	uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
	CUresult r = context_error(f->wireContext);
	if (r != CUDA_SUCCESS)
		return r;
	int64_t blocks = occupancy_blocks(f, (int64_t)threads, shape->sharedBytes);
	int processors = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	uint64_t grid;
	if (__builtin_mul_overflow((uint64_t)shape->grid[0] * shape->grid[1], (uint64_t)shape->grid[2], &grid) ||
		grid > (uint64_t)blocks * (uint64_t)processors)
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return CUDA_SUCCESS;
}

static CUresult check_clusters(const struct function *f, const struct launch_args *shape)
{
	uint32_t blocks = 1;
	for (int i = 0; i < 3; i++) {
		uint32_t side = shape->flags >> (8 + 8 * i) & 255;
		if (side == 0 || shape->grid[i] % side)
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		blocks *= side;
	}
	bool has = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
	return has && blocks <= CLUSTER_MOST_ANYWHERE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult launch_check(const struct function *f, const struct launch_args *shape)
{
	CUresult r;
	if (UNLIKELY((r = check_shape(f, shape->grid, shape->block)) != CUDA_SUCCESS ||
		(r = check_shared(f, shape->sharedBytes)) != CUDA_SUCCESS))
		return r;
	if (UNLIKELY((shape->flags & LAUNCH_CLUSTERED) && (r = check_clusters(f, shape)) != CUDA_SUCCESS))
		return r;
	return UNLIKELY(shape->flags & LAUNCH_COOPERATIVE) ? check_cooperative(f, shape) : CUDA_SUCCESS;
}

CUresult launch_pack(const struct function *f, void **values, void **extra, struct packed_launch *p)
{
	p->more = NULL;
	CUresult r = launch_check(f, &p->args);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	if (UNLIKELY(values && extra))
		return CUDA_ERROR_INVALID_VALUE;
	if (UNLIKELY(f->facts.paramBytes > (uint32_t)PACKET_PARAMS))
		return CUDA_ERROR_NOT_SUPPORTED;
	p->args.function = f->wire;
	p->paramBytes = f->facts.paramBytes;
	p->params = p->room;
	if (extra)
		return find_block(f, extra, &p->params);
	uint8_t *block = p->room;
	if (UNLIKELY(p->paramBytes > sizeof p->room)) {
		p->params = block = p->more = malloc(p->paramBytes);
		if (!block)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (UNLIKELY(f->padded))
		memset(block, 0, p->paramBytes);
	return gather(f, values, block);
}
