/*
 * Tensor maps, by which kernels copy whole tiles. Their format is private to the device, so the host's driver creates
 * them. The manual requires 64-byte alignment; NVIDIA's driver (580, on an H200) writes them to any address.
 */
#include <string.h>

#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "object/context.h"

enum { RANK_MOST = 5, TILED = 0, COLUMNS = 1, MOVED = 2 };

static CUresult ask(CUtensorMap *out, const struct tensor_map_args *args)
{
	struct context *c;
	struct tensor_map_result answer;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct packet p = {.op = OP_TENSOR_MAP, .context = c->wire, .fixed = args, .fixedBytes = sizeof *args};
	r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		memcpy(out, answer.map, sizeof answer.map);
	return r;
}

/* Arguments common to both kinds. */
static CUresult begin(struct tensor_map_args *args, CUtensorMap *out, cuuint32_t least, const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps)
{
	cuuint32_t rank = args->rank;
	if (!out || rank < least || rank > RANK_MOST || !dims || !steps || (rank > 1 && !strides))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(args->dims, dims, rank * sizeof *dims);
	memcpy(args->steps, steps, rank * sizeof *steps);
	if (rank > 1)
		memcpy(args->strides, strides, (rank - 1) * sizeof *strides);
	return CUDA_SUCCESS;
}

CUresult pg_cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
	const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
	CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	struct tensor_map_args args = {
		.form = TILED, .address = (uint64_t)(uintptr_t)address, .type = type, .rank = rank, .interleave = interleave, .swizzle = swizzle, .promotion = promotion,
		.fill = fill,
	};
	CUresult r = box ? begin(&args, out, 1, dims, strides, steps) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(args.box, box, rank * sizeof *box);
	return ask(out, &args);
}

CUresult pg_cuTensorMapEncodeIm2col(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
	const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
	CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	struct tensor_map_args args = {
		.form = COLUMNS, .address = (uint64_t)(uintptr_t)address, .type = type, .rank = rank, .interleave = interleave, .swizzle = swizzle, .promotion = promotion,
		.fill = fill, .channels = channels, .pixels = pixels,
	};
	CUresult r = lower && upper ? begin(&args, out, 3, dims, strides, steps) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(args.lower, lower, (rank - 2) * sizeof *lower);
	memcpy(args.upper, upper, (rank - 2) * sizeof *upper);
	return ask(out, &args);
}

CUresult pg_cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	if (!map)
		return CUDA_ERROR_INVALID_VALUE;
	struct tensor_map_args args = {.form = MOVED, .address = (uint64_t)(uintptr_t)address};
	memcpy(args.old, map, sizeof args.old);
	return ask(map, &args);
}
