/*
 * Kernel launches. They are queued; errors in the configuration are returned at once, as a driver does. Parameters are
 * packed according to the layout of the module: the library reads exactly the declared sizes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/device_printf.h"
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "image/library.h"
#include "object/context.h"
#include "work/launch.h"

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

/*
 * Function and stream must belong to one context. The current context doesn't matter, as with NVIDIA's driver (580, on
 * an H200), nor whether there is one or it has failed. A kernel only needs a stream.
 */
static CUresult check_place(CUfunction handle, const struct function *f, const struct place *place)
{
	struct context *current;
	if (LIKELY(place->contextHandle == f->context) || (uint64_t)(uintptr_t)handle != f->object.id)
		return CUDA_SUCCESS;
	CUresult r = context_current(&current);
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : r;
}

/* All blocks of a cooperative launch have to be resident on the device at once. */
static CUresult check_cooperative(const struct function *f, const struct launch_args *shape)
{
	uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
	int blocks;
	CUresult r = pg_cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, HANDLE_OF(CUfunction, f), (int)threads, shape->sharedBytes);
	if (r != CUDA_SUCCESS)
		return r;
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

CUresult launch_pack(const struct function *f, void **values, void **extra, struct parcel *p)
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

void launch_unpack(struct parcel *p)
{
	if (UNLIKELY(p->more))
		free(p->more);
}

/* The first launch of a function may have to wait for the device's result. */
static CUresult post(struct function *f, const struct parcel *parcel)
{
	struct packet p = {
		.op = OP_LAUNCH, .context = parcel->place.context, .stream = parcel->place.stream, .sent = &parcel->place.mark->sent,
		.fixed = &parcel->args, .fixedBytes = sizeof parcel->args, .tail = parcel->params, .tailBytes = parcel->paramBytes,
	};
	if (LIKELY(atomic_load_explicit(&f->tried, memory_order_relaxed)))
		return ring_post(&p);
	CUresult r = ring_wait(&p, false);
	if (r == CUDA_SUCCESS)
		atomic_store_explicit(&f->tried, true, memory_order_relaxed);
	return r == CUDA_SUCCESS ? r : text_shown(p.context, r); /* the output explains the error */
}

static CUresult launch(CUfunction handle, const struct launch_args *shape, CUstream stream, void **values, void **extra)
{
	struct parcel parcel;
	CUresult r = stream_resolve_any(stream, &parcel.place);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	struct function *f;
	r = function_take(handle, parcel.place.contextHandle, &f);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	parcel.args = *shape;
	parcel.more = NULL;
	r = check_place(handle, f, &parcel.place);
	if (LIKELY(r == CUDA_SUCCESS))
		r = launch_pack(f, values, extra, &parcel);
	if (LIKELY(r == CUDA_SUCCESS))
		r = LIKELY(!parcel.place.capturing) ? post(f, &parcel) : capture_kernel(&parcel, handle, f);
	else if (parcel.place.capturing)
		capture_refuse(parcel.place.capturing); /* a rejected launch invalidates the capture, as with an H200 */
	launch_unpack(&parcel);
	function_release(f);
	return r;
}

CUresult pg_cuLaunchKernel(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ, unsigned int blockX,
	unsigned int blockY, unsigned int blockZ, unsigned int shared, CUstream stream, void **values, void **extra)
{
	struct launch_args shape = {.grid = {gridX, gridY, gridZ}, .block = {blockX, blockY, blockZ}, .sharedBytes = shared};
	return launch(f, &shape, stream, values, extra);
}

CUresult pg_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
	unsigned int blockX, unsigned int blockY, unsigned int blockZ, unsigned int shared, CUstream stream, void **values)
{
	struct launch_args shape = {
		.grid = {gridX, gridY, gridZ}, .block = {blockX, blockY, blockZ}, .sharedBytes = shared, .flags = LAUNCH_COOPERATIVE,
	};
	return launch(f, &shape, stream, values, NULL);
}

/* Clusters of one block count as no clusters. */
static CUresult read_cluster(const CUlaunchAttribute *a, uint32_t *flags)
{
	unsigned int x = a->value.clusterDim.x, y = a->value.clusterDim.y, z = a->value.clusterDim.z;
	if (x > 255 || y > 255 || z > 255)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (x > 1 || y > 1 || z > 1)
		*flags |= LAUNCH_CLUSTER(x, y, z);
	return CUDA_SUCCESS;
}

/* Attributes that are hints are ignored; those with an effect on the result are rejected. */
static CUresult read_attributes(const CUlaunchConfig *config, uint32_t *flags)
{
	if (config->numAttrs > 0 && !config->attrs)
		return CUDA_ERROR_INVALID_VALUE;
	if (config->numAttrs > 64)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];
		switch ((unsigned)a->id) {
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
			break;
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			if (a->value.cooperative)
				*flags |= LAUNCH_COOPERATIVE;
			break;
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
			if (read_cluster(a, flags) != CUDA_SUCCESS)
				return CUDA_ERROR_INVALID_CLUSTER_SIZE;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
			break; /* running after all earlier work is always permitted */
		default:
			return (unsigned)a->id <= CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE ? CUDA_ERROR_NOT_SUPPORTED
			                                                                 : CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **values, void **extra)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	struct launch_args shape = {
		.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
		.block = {config->blockDimX, config->blockDimY, config->blockDimZ}, .sharedBytes = config->sharedMemBytes,
	};
	CUresult r = read_attributes(config, &shape.flags);
	return r == CUDA_SUCCESS ? launch(f, &shape, config->hStream, values, extra) : r;
}

/* --- the old launch interface: settings are collected in the function, then launched --- */

static CUresult old_of(CUfunction handle, struct function **f, struct old_launch **old)
{
	CUresult r = function_only(handle, f);
	if (r != CUDA_SUCCESS)
		return r;
	*old = atomic_load_explicit(&(*f)->old, memory_order_acquire);
	if (*old)
		return CUDA_SUCCESS;
	struct old_launch *fresh = calloc(1, sizeof *fresh), *none = NULL;
	if (!fresh)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fresh->block[0] = fresh->block[1] = fresh->block[2] = 1;
	*old = fresh;
	if (!atomic_compare_exchange_strong(&(*f)->old, &none, fresh)) {
		free(fresh);
		*old = none;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuFuncSetBlockShape(CUfunction handle, int x, int y, int z)
{
	struct function *f;
	struct old_launch *old;
	CUresult r = old_of(handle, &f, &old);
	if (r != CUDA_SUCCESS)
		return r;
	if (x <= 0 || y <= 0 || z <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	old->block[0] = (uint32_t)x;
	old->block[1] = (uint32_t)y;
	old->block[2] = (uint32_t)z;
	return CUDA_SUCCESS;
}

CUresult pg_cuFuncSetSharedSize(CUfunction handle, unsigned int bytes)
{
	struct function *f;
	struct old_launch *old;
	CUresult r = old_of(handle, &f, &old);
	if (r == CUDA_SUCCESS)
		old->sharedBytes = bytes;
	return r;
}

CUresult pg_cuParamSetSize(CUfunction handle, unsigned int bytes)
{
	struct function *f;
	struct old_launch *old;
	CUresult r = old_of(handle, &f, &old);
	if (r != CUDA_SUCCESS)
		return r;
	if (bytes > OLD_PARAMS_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	old->paramBytes = bytes;
	return CUDA_SUCCESS;
}

CUresult pg_cuParamSetv(CUfunction handle, int offset, void *value, unsigned int bytes)
{
	struct function *f;
	struct old_launch *old;
	CUresult r = old_of(handle, &f, &old);
	if (r != CUDA_SUCCESS)
		return r;
	if (!value || offset < 0 || offset > OLD_PARAMS_MOST || bytes > OLD_PARAMS_MOST - (unsigned)offset)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(old->params + offset, value, bytes);
	return CUDA_SUCCESS;
}

CUresult pg_cuParamSeti(CUfunction handle, int offset, unsigned int value)
{
	return pg_cuParamSetv(handle, offset, &value, sizeof value);
}

CUresult pg_cuParamSetf(CUfunction handle, int offset, float value)
{
	return pg_cuParamSetv(handle, offset, &value, sizeof value);
}

CUresult pg_cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream)
{
	struct function *f;
	struct old_launch *old;
	CUresult r = old_of(handle, &f, &old);
	if (r != CUDA_SUCCESS)
		return r;
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct launch_args shape = {
		.grid = {(uint32_t)width, (uint32_t)height, 1}, .block = {old->block[0], old->block[1], old->block[2]},
		.sharedBytes = old->sharedBytes,
	};
	size_t bytes = old->paramBytes;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	return launch(handle, &shape, stream, NULL, extra);
}

CUresult pg_cuLaunchGrid(CUfunction f, int width, int height) { return pg_cuLaunchGridAsync(f, width, height, CU_STREAM_LEGACY); }

CUresult pg_cuLaunch(CUfunction f) { return pg_cuLaunchGrid(f, 1, 1); }
