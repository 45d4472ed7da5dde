/* Kernel launches: submission to the ring or to a capture, and the old launch interface. */
#include <stdlib.h>
#include <string.h>

#include "core/device_printf.h"
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "graph/exec.h"
#include "image/library.h"
#include "object/context.h"
#include "work/launch.h"

/*
 * Function and stream must belong to one context. The current context doesn't matter, as with NVIDIA's driver (580, on
 * an H200), nor whether there is one or it has failed. A kernel only needs a stream.
 */
static CUresult check_target(CUfunction handle, const struct function *f, const struct stream_ref *ref)
{
	struct context *current;
	if (LIKELY(ref->contextHandle == f->context) || (uint64_t)(uintptr_t)handle != f->object.id)
		return CUDA_SUCCESS;
	CUresult r = context_current(&current);
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : r;
}

/* The first launch of a function may have to wait for the device's result. */
static CUresult post(struct function *f, const struct packed_launch *packed)
{
	struct packet p = {
		.op = OP_LAUNCH, .context = packed->ref.context, .stream = packed->ref.stream, .sent = &packed->ref.marker->sent,
		.fixed = &packed->args, .fixedBytes = sizeof packed->args, .tail = packed->params, .tailBytes = packed->paramBytes,
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
	struct packed_launch packed;
	CUresult r = stream_resolve_any(stream, &packed.ref);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	struct function *f;
	r = function_take(handle, packed.ref.contextHandle, &f);
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	packed.args = *shape;
	packed.more = NULL;
	r = check_target(handle, f, &packed.ref);
	if (LIKELY(r == CUDA_SUCCESS))
		r = launch_pack(f, values, extra, &packed);
	if (LIKELY(r == CUDA_SUCCESS))
		r = LIKELY(!packed.ref.capturing) ? post(f, &packed) : capture_kernel(&packed, handle, f);
	else if (packed.ref.capturing)
		capture_refuse(packed.ref.capturing); /* a rejected launch invalidates the capture, as with an H200 */
	launch_unpack(&packed);
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

/* --- executable graphs --- */

CUresult pg_cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
	bool settles = false;
	CUresult r = graph_launch(handle, stream, &settles);
	return r == CUDA_SUCCESS && UNLIKELY(settles) ? pg_cuStreamSynchronize(stream) : r;
}
