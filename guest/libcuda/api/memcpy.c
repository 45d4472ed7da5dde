/*
 * The variants of copy calls, reduced to boxes between endpoints: the permitted memory of each argument, and when the
 * call returns.
 */
#include "api/memcpy.h"

#include "core/arena.h"
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "object/context.h"
#include "work/copy.h"
#include "work/hostmap.h"

/* When a copy returns, beyond the guarantees of copy_box. */
enum until { UNTIL_COMPLETE, UNTIL_QUEUED, UNTIL_READ };

static bool syncs(const struct stream_ref *ref, const struct box *box)
{
	return box->dst.sync || box->src.sync || stream_syncs(ref);
}

/* Pinned memory is read like pageable memory, before the call returns, whatever the state of its stream. */
static void read_now(struct copy_endpoint *src)
{
	if (src->where != AT_ARENA)
		return;
	src->address = (uint64_t)(uintptr_t)arena_at(src->address);
	src->where = AT_HOST;
}

/*
 * Registered memory with a device address is copied in stream order by the worker, as devices may change it until then.
 */
static void find_in_arena(struct copy_endpoint *e, const struct box *box)
{
	uint64_t bytes, offset;
	if (e->where != AT_HOST || box->width == 0 || box->height == 0 || box->depth == 0)
		return;
	bytes = ((box->depth - 1) * e->height + box->height - 1) * e->pitch + box->width;
	if (LIKELY(!hostmap_find(e->address, bytes, &offset)))
		return;
	e->where = AT_ARENA;
	e->address = offset;
}

/* Reports whether the call returns after the copy has completed. */
static bool waits(const struct stream_ref *ref, const struct box *box, enum until until, bool within)
{
	return until == UNTIL_COMPLETE && (!within || syncs(ref, box));
}

/*
 * Runs the copy. A source that only the worker can access has been read when the copy is complete. In a capture nothing
 * is read yet.
 */
static CUresult copy_until(const struct stream_ref *ref, struct box *box, enum until until, bool within)
{
	if (UNLIKELY(ref->capturing))
		return waits(ref, box, until, within) ? capture_refuse(ref->capturing) : capture_copy(ref, box);
	find_in_arena(&box->dst, box);
	find_in_arena(&box->src, box);
	if (until != UNTIL_READ)
		return copy_box(ref, box, waits(ref, box, until, within));
	read_now(&box->src);
	return copy_box(ref, box, box->src.where != AT_HOST);
}

static CUresult copy_line(struct copy_endpoint dst, struct copy_endpoint src, size_t bytes, CUstream stream, enum until until)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	struct box box = {.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1};
	/*
	 * Between two device addresses, even a synchronous copy returns at once, unless the program set synchronous memory
	 * operations.
	 */
	bool within = dst.where == AT_DEVICE && src.where == AT_DEVICE;
	return copy_until(&ref, &box, until, within);
}

/* Declared memory of an argument: device memory, a pointer to host memory, or either, by its address. */
enum said { SAID_DEVICE, SAID_HOST, SAID_ANY };

static CUresult said_endpoint(uint64_t address, enum said said, size_t bytes, bool write, struct copy_endpoint *end)
{
	CUresult r = endpoint_from_address(address, bytes, said == SAID_DEVICE, end);
	if (r == CUDA_SUCCESS && said == SAID_ANY && !endpoint_usable(end, bytes, write))
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}

static CUresult linear(uint64_t dst, enum said dstSaid, uint64_t src, enum said srcSaid, size_t bytes, CUstream stream,
	enum until until)
{
	struct copy_endpoint to, from;
	if (bytes == 0)
		return copy_line((struct copy_endpoint){0}, (struct copy_endpoint){0}, 0, stream, until);
	if (!dst || !src || bytes > (uint64_t)INT64_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = said_endpoint(dst, dstSaid, bytes, true, &to);
	if (r == CUDA_SUCCESS)
		r = said_endpoint(src, srcSaid, bytes, false, &from);
	if (r != CUDA_SUCCESS) {
		struct context *c; /* a missing context takes precedence as the error */
		CUresult first = context_current(&c);
		return first != CUDA_SUCCESS ? first : r;
	}
	to.pitch = from.pitch = bytes;
	to.height = from.height = 1;
	return copy_line(to, from, bytes, stream, until);
}

static uint64_t host(const void *p) { return (uint64_t)(uintptr_t)p; }

CUresult pg_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(dst, SAID_ANY, src, SAID_ANY, n, s, UNTIL_COMPLETE);
}

CUresult pg_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(dst, SAID_ANY, src, SAID_ANY, n, s, UNTIL_QUEUED);
}

CUresult memcpy_reading(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(dst, SAID_ANY, src, SAID_ANY, n, s, UNTIL_READ);
}

CUresult pg_cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	return linear(dst, SAID_DEVICE, host(src), SAID_HOST, n, s, UNTIL_COMPLETE);
}

CUresult pg_cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	return linear(dst, SAID_DEVICE, host(src), SAID_HOST, n, s, UNTIL_QUEUED);
}

CUresult pg_cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(host(dst), SAID_HOST, src, SAID_DEVICE, n, s, UNTIL_COMPLETE);
}

CUresult pg_cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(host(dst), SAID_HOST, src, SAID_DEVICE, n, s, UNTIL_QUEUED);
}

CUresult pg_cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(dst, SAID_DEVICE, src, SAID_DEVICE, n, s, UNTIL_COMPLETE);
}

CUresult pg_cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	return linear(dst, SAID_DEVICE, src, SAID_DEVICE, n, s, UNTIL_QUEUED);
}

/* Under unified addressing the contexts only have to exist. */
static CUresult check_peers(CUcontext a, CUcontext b)
{
	struct context *c;
	CUresult r = context_of(a, &c);
	return r == CUDA_SUCCESS ? context_of(b, &c) : r;
}

CUresult pg_cuMemcpyPeer(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t n, CUstream s)
{
	CUresult r = check_peers(dstContext, srcContext);
	return r == CUDA_SUCCESS ? pg_cuMemcpyDtoD_v2(dst, src, n, s) : r;
}

CUresult pg_cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t n, CUstream s)
{
	CUresult r = check_peers(dstContext, srcContext);
	return r == CUDA_SUCCESS ? pg_cuMemcpyDtoDAsync_v2(dst, src, n, s) : r;
}

/* --- one-dimensional copies of arrays: the offset is in bytes of the first row --- */

static CUresult with_array(struct copy_endpoint *dst, struct copy_endpoint *src, size_t bytes, CUstream s, enum until until)
{
	return bytes == 0 ? copy_line((struct copy_endpoint){0}, (struct copy_endpoint){0}, 0, s, until) : copy_line(*dst, *src, bytes, s, until);
}

static CUresult array_line(CUarray handle, size_t offset, size_t bytes, struct copy_endpoint *end)
{
	return endpoint_from_array(handle, offset, 0, 0, bytes, 1, 1, end);
}

static CUresult memory_line(uint64_t address, enum said said, size_t bytes, struct copy_endpoint *end)
{
	if (bytes > 0 && !address)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = bytes == 0 ? CUDA_SUCCESS : endpoint_from_address(address, bytes, said == SAID_DEVICE, end);
	end->pitch = bytes;
	end->height = 1;
	return r;
}

static CUresult to_array(CUarray array, size_t offset, uint64_t src, enum said said, size_t n, CUstream s, enum until until)
{
	struct copy_endpoint dst, from;
	CUresult r = array_line(array, offset, n, &dst);
	if (r == CUDA_SUCCESS)
		r = memory_line(src, said, n, &from);
	return r == CUDA_SUCCESS ? with_array(&dst, &from, n, s, until) : r;
}

static CUresult from_array(uint64_t dst, enum said said, CUarray array, size_t offset, size_t n, CUstream s, enum until until)
{
	struct copy_endpoint to, src;
	CUresult r = array_line(array, offset, n, &src);
	if (r == CUDA_SUCCESS)
		r = memory_line(dst, said, n, &to);
	return r == CUDA_SUCCESS ? with_array(&to, &src, n, s, until) : r;
}

CUresult pg_cuMemcpyHtoA_v2(CUarray dst, size_t offset, const void *src, size_t n, CUstream s)
{
	return to_array(dst, offset, host(src), SAID_HOST, n, s, UNTIL_COMPLETE);
}

CUresult pg_cuMemcpyHtoAAsync_v2(CUarray dst, size_t offset, const void *src, size_t n, CUstream s)
{
	return to_array(dst, offset, host(src), SAID_HOST, n, s, UNTIL_QUEUED);
}

CUresult pg_cuMemcpyDtoA_v2(CUarray dst, size_t offset, CUdeviceptr src, size_t n, CUstream s)
{
	return to_array(dst, offset, src, SAID_DEVICE, n, s, UNTIL_QUEUED);
}

CUresult pg_cuMemcpyAtoH_v2(void *dst, CUarray src, size_t offset, size_t n, CUstream s)
{
	return from_array(host(dst), SAID_HOST, src, offset, n, s, UNTIL_COMPLETE);
}

CUresult pg_cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t offset, size_t n, CUstream s)
{
	return from_array(host(dst), SAID_HOST, src, offset, n, s, UNTIL_QUEUED);
}

CUresult pg_cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t offset, size_t n, CUstream s)
{
	return from_array(dst, SAID_DEVICE, src, offset, n, s, UNTIL_QUEUED);
}

CUresult pg_cuMemcpyAtoA_v2(CUarray dst, size_t dstOffset, CUarray src, size_t srcOffset, size_t n, CUstream s)
{
	struct copy_endpoint to, from;
	CUresult r = array_line(dst, dstOffset, n, &to);
	if (r == CUDA_SUCCESS)
		r = array_line(src, srcOffset, n, &from);
	return r == CUDA_SUCCESS ? with_array(&to, &from, n, s, UNTIL_QUEUED) : r;
}

/* --- boxes --- */

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, enum until until)
{
	struct stream_ref ref;
	CUresult r = context_any();
	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	struct box box;
	r = box_of(c, &box);
	if (r != CUDA_SUCCESS || c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0)
		return r;
	bool onDevice = box.dst.where != AT_HOST && box.src.where != AT_HOST && box.dst.where != AT_ARENA && box.src.where != AT_ARENA;
	return copy_until(&ref, &box, until, onDevice);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, enum until until)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D box = {
		.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType, .srcHost = c->srcHost,
		.srcDevice = c->srcDevice, .srcArray = c->srcArray, .srcPitch = c->srcPitch,
		.dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType, .dstHost = c->dstHost,
		.dstDevice = c->dstDevice, .dstArray = c->dstArray, .dstPitch = c->dstPitch,
		.WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1,
	};
	return copy_3d(&box, stream, until);
}

CUresult pg_cuMemcpy2D_v2(const CUDA_MEMCPY2D *c, CUstream s) { return copy_2d(c, s, UNTIL_COMPLETE); }
CUresult pg_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c, CUstream s) { return copy_2d(c, s, UNTIL_COMPLETE); }
CUresult pg_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s) { return copy_2d(c, s, UNTIL_QUEUED); }

CUresult pg_cuMemcpy3D_v2(const CUDA_MEMCPY3D *c, CUstream s)
{
	return c ? copy_3d(c, s, UNTIL_COMPLETE) : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream s)
{
	return c ? copy_3d(c, s, UNTIL_QUEUED) : CUDA_ERROR_INVALID_VALUE;
}

CUresult memcpy_box_reading(const CUDA_MEMCPY3D *c, CUstream s) { return copy_3d(c, s, UNTIL_READ); }

static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, enum until until)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = check_peers(p->dstContext, p->srcContext);
	if (r != CUDA_SUCCESS)
		return r;
	CUDA_MEMCPY3D c = {
		.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcZ = p->srcZ, .srcLOD = p->srcLOD,
		.srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost, .srcDevice = p->srcDevice, .srcArray = p->srcArray,
		.srcPitch = p->srcPitch, .srcHeight = p->srcHeight,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstZ = p->dstZ, .dstLOD = p->dstLOD,
		.dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost, .dstDevice = p->dstDevice, .dstArray = p->dstArray,
		.dstPitch = p->dstPitch, .dstHeight = p->dstHeight,
		.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = p->Depth,
	};
	return copy_3d(&c, stream, until);
}

CUresult pg_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *c, CUstream s) { return copy_peer(c, s, UNTIL_COMPLETE); }
CUresult pg_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream s) { return copy_peer(c, s, UNTIL_QUEUED); }
