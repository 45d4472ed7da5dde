#include "work/fill.h"

#include "work/box.h"

static CUresult extent_of(const struct fill *f, uint64_t *bytes)
{
	uint64_t row, rest;
	if (__builtin_mul_overflow(f->width, (uint64_t)f->elementSize, &row) ||
		(f->height > 1 && f->pitch < row) || __builtin_mul_overflow(f->height - 1, f->pitch, &rest) ||
		__builtin_add_overflow(row, rest, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* The arena is filled like device memory: the worker maps it at the same address. */
struct fill_args fill_args_of(const struct fill *f)
{
	return (struct fill_args){
		.dst = f->target, .width = f->width, .height = f->height, .pitch = f->pitch, .value = f->value,
		.elementSize = f->elementSize,
	};
}

CUresult fill_check(const struct fill *f, struct copy_endpoint *end)
{
	uint64_t bytes;
	if (f->target % f->elementSize != 0 || (f->height > 1 && f->pitch % f->elementSize != 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (f->width == 0 || f->height == 0)
		return CUDA_SUCCESS;
	CUresult r = extent_of(f, &bytes);
	return r == CUDA_SUCCESS ? endpoint_from_address(f->target, bytes, true, end) : r;
}

CUresult fill_of(const CUDA_MEMSET_NODE_PARAMS *p, struct fill_args *args)
{
	struct fill f = {.target = p->dst, .width = p->width, .height = p->height, .pitch = p->pitch, .value = p->value, .elementSize = p->elementSize};
	struct copy_endpoint end;
	if (f.elementSize != 1 && f.elementSize != 2 && f.elementSize != 4)
		return CUDA_ERROR_INVALID_VALUE;
	*args = fill_args_of(&f);
	return fill_check(&f, &end);
}
