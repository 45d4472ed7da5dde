/* Occupancy queries. The program's callback that returns the shared memory of a block size is called directly. */
#include "core/device.h"
#include "core/zz_impl.h"
#include "image/library.h"
#include "work/launch.h"
#include "work/occupancy.h"

CUresult pg_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int threads, size_t dynamic,
	unsigned int flags)
{
	if (!blocks || threads <= 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f;
	CUresult r = function_of(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	*blocks = (int)occupancy_blocks(f, threads, dynamic);
	return CUDA_SUCCESS;
}

CUresult pg_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t dynamic)
{
	return pg_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, dynamic, 0);
}

CUresult pg_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGrid, int *blockSize, CUfunction handle,
	CUoccupancyB2DSize sharedFor, size_t dynamic, int limit, unsigned int flags)
{
	if (!minGrid || !blockSize || limit < 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f;
	CUresult r = function_of(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	int64_t most = least(f->facts.maxThreads, device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
	if (limit > 0)
		most = least(most, limit);
	int64_t full = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	int64_t best = 0, bestThreads = 0, bestBlocks = 0;
	for (int64_t tryThreads = round_up(most, WARP); tryThreads > 0 && best < full; tryThreads -= WARP) {
		int64_t threads = least(tryThreads, most);
		int64_t blocks = occupancy_blocks(f, threads, sharedFor ? sharedFor((int)threads) : dynamic);
		if (blocks * threads > best) {
			best = blocks * threads;
			bestThreads = threads;
			bestBlocks = blocks;
		}
	}
	*minGrid = (int)(bestBlocks * device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
	*blockSize = (int)bestThreads;
	return CUDA_SUCCESS;
}

CUresult pg_cuOccupancyMaxPotentialBlockSize(int *minGrid, int *blockSize, CUfunction f, CUoccupancyB2DSize sharedFor,
	size_t dynamic, int limit)
{
	return pg_cuOccupancyMaxPotentialBlockSizeWithFlags(minGrid, blockSize, f, sharedFor, dynamic, limit, 0);
}

CUresult pg_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic, CUfunction handle, int blocks, int threads)
{
	if (!dynamic || blocks <= 0 || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f;
	CUresult r = function_of(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	if (occupancy_blocks(f, threads, 0) < blocks)
		return CUDA_ERROR_INVALID_VALUE;
	int64_t shared = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	int64_t reserved = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	int64_t room = shared / blocks / SHARED_UNIT * SHARED_UNIT - reserved - f->facts.staticShared;
	room = least(room, f->maxDynamicShared);
	*dynamic = room > 0 ? (size_t)room : 0;
	return CUDA_SUCCESS;
}

/* --- clusters: on a device without any, a block is its own cluster --- */

static int64_t cluster_most(const struct function *f)
{
	return device_attribute(f->device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) ? CLUSTER_MOST : 1;
}

/* Sets *blocks to the number of blocks in a launch's clusters. */
static CUresult cluster_blocks(const struct function *f, const CUlaunchConfig *config, int64_t *blocks)
{
	*blocks = 1;
	if (config->numAttrs > 64 || (config->numAttrs > 0 && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];
		if (a->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			continue;
		const unsigned int sides[] = {a->value.clusterDim.x, a->value.clusterDim.y, a->value.clusterDim.z};
		for (int k = 0; k < 3; k++)
			*blocks *= sides[k] > CLUSTER_MOST_ANYWHERE ? CLUSTER_MOST_ANYWHERE + 1 : sides[k] ? sides[k] : 1;
		if (*blocks > (cluster_most(f) > 1 ? CLUSTER_MOST_ANYWHERE : 1))
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config)
{
	struct function *f;
	if (!size || !config)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = function_of(handle, &f);
	if (r == CUDA_SUCCESS)
		*size = (int)cluster_most(f);
	return r;
}

CUresult pg_cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config)
{
	struct function *f;
	if (!clusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = function_of(handle, &f);
	int64_t each;
	if (r != CUDA_SUCCESS || (r = cluster_blocks(f, config, &each)) != CUDA_SUCCESS)
		return r;
	const unsigned int sides[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
	int64_t threads = 1;
	for (int i = 0; i < 3; i++) {
		if (sides[i] == 0 || sides[i] > (unsigned)device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i))
			return CUDA_ERROR_INVALID_VALUE;
		threads *= sides[i];
	}
	int64_t blocks = occupancy_blocks(f, threads, config->sharedMemBytes);
	/*
	 * The grouping of multiprocessors, which a cluster cannot cross, is not published: the real number may be slightly
	 * lower.
	 */
	*clusters = (int)(blocks * device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) / each);
	return CUDA_SUCCESS;
}
