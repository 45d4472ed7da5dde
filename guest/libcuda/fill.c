/* Fills. Asynchronous to the host by either name, except that a synchronous one waits of pinned or managed memory, or if the program wants it to. */
#include "copy.h"
#include "range.h"
#include "arena.h"
#include "ring.h"
#include "zz_impl.h"
#include "zz_wire.h"

struct fill {
	CUdeviceptr target;
	uint64_t width, height, pitch; /* width in elements, pitch in bytes */
	uint32_t value, elementSize;
};

static CUresult extent_of(const struct fill *f, uint64_t *bytes)
{
	uint64_t row, rest;
	if (__builtin_mul_overflow(f->width, (uint64_t)f->elementSize, &row) ||
		(f->height > 1 && f->pitch < row) || __builtin_mul_overflow(f->height - 1, f->pitch, &rest) ||
		__builtin_add_overflow(row, rest, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult fill(const struct fill *f, CUstream stream, bool wait)
{
	struct place place;
	CUresult r = stream_resolve(stream, &place);
	if (r != CUDA_SUCCESS)
		return r;
	if (f->target % f->elementSize != 0 || (f->height > 1 && f->pitch % f->elementSize != 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (f->width == 0 || f->height == 0)
		return CUDA_SUCCESS;
	uint64_t bytes;
	struct end end;
	if ((r = extent_of(f, &bytes)) != CUDA_SUCCESS || (r = end_linear(f->target, bytes, true, &end)) != CUDA_SUCCESS)
		return r;
	/* The arena is device memory like any other here: the worker has it at the same address. */
	struct fill_args args = {
		.dst = f->target, .width = f->width, .height = f->height, .pitch = f->pitch, .value = f->value,
		.elementSize = f->elementSize,
	};
	struct packet p = {
		.op = OP_FILL, .context = place.context, .stream = place.stream, .sent = &place.mark->sent, .fixed = &args, .fixedBytes = sizeof args,
	};
	return wait && (end.where == AT_ARENA || end.sync || place_syncs(&place)) ? ring_call(&p, NULL, 0) : ring_post(&p);
}

static CUresult fill_line(CUdeviceptr d, uint32_t value, uint32_t size, size_t n, CUstream s, bool wait)
{
	struct fill f = {.target = d, .width = n, .height = 1, .value = value, .elementSize = size};
	return fill(&f, s, wait);
}

static CUresult fill_rows(CUdeviceptr d, size_t pitch, uint32_t value, uint32_t size, size_t w, size_t h, CUstream s, bool wait)
{
	struct fill f = {.target = d, .width = w, .height = h, .pitch = pitch, .value = value, .elementSize = size};
	return fill(&f, s, wait);
}

CUresult pg_cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n, CUstream s) { return fill_line(d, v, 1, n, s, true); }
CUresult pg_cuMemsetD16_v2(CUdeviceptr d, unsigned short v, size_t n, CUstream s) { return fill_line(d, v, 2, n, s, true); }
CUresult pg_cuMemsetD32_v2(CUdeviceptr d, unsigned int v, size_t n, CUstream s) { return fill_line(d, v, 4, n, s, true); }
CUresult pg_cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) { return fill_line(d, v, 1, n, s, false); }
CUresult pg_cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, CUstream s) { return fill_line(d, v, 2, n, s, false); }
CUresult pg_cuMemsetD32Async(CUdeviceptr d, unsigned int v, size_t n, CUstream s) { return fill_line(d, v, 4, n, s, false); }

CUresult pg_cuMemsetD2D8_v2(CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s)
{
	return fill_rows(d, pitch, v, 1, w, h, s, true);
}

CUresult pg_cuMemsetD2D16_v2(CUdeviceptr d, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s)
{
	return fill_rows(d, pitch, v, 2, w, h, s, true);
}

CUresult pg_cuMemsetD2D32_v2(CUdeviceptr d, size_t pitch, unsigned int v, size_t w, size_t h, CUstream s)
{
	return fill_rows(d, pitch, v, 4, w, h, s, true);
}

CUresult pg_cuMemsetD2D8Async(CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s)
{
	return fill_rows(d, pitch, v, 1, w, h, s, false);
}

CUresult pg_cuMemsetD2D16Async(CUdeviceptr d, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s)
{
	return fill_rows(d, pitch, v, 2, w, h, s, false);
}

CUresult pg_cuMemsetD2D32Async(CUdeviceptr d, size_t pitch, unsigned int v, size_t w, size_t h, CUstream s)
{
	return fill_rows(d, pitch, v, 4, w, h, s, false);
}
