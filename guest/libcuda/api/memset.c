/*
 * Fills. Both variants are asynchronous to the host, except that a synchronous fill waits for pinned or managed memory,
 * or if the program set synchronous memory operations.
 */
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "work/copy.h"
#include "work/fill.h"

static CUresult fill(const struct fill *f, CUstream stream, bool wait)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	struct copy_endpoint end;
	if ((r = fill_check(f, &end)) != CUDA_SUCCESS || f->width == 0 || f->height == 0)
		return r;
	struct fill_args args = fill_args_of(f);
	if (UNLIKELY(ref.capturing))
		return wait ? capture_refuse(ref.capturing) : capture_fill(&ref, &args);
	struct packet p = {
		.op = OP_FILL, .context = ref.context, .stream = ref.stream, .sent = &ref.marker->sent, .fixed = &args, .fixedBytes = sizeof args,
	};
	return wait && (end.where == AT_ARENA || end.sync || stream_syncs(&ref)) ? ring_call(&p, NULL, 0) : ring_post(&p);
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
