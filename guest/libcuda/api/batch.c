/* Batches of other calls: copies with attributes, prefetches, and discards of managed memory. */
#include "api/memcpy.h"
#include "core/range.h"
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "object/array.h"
#include "object/context.h"
#include "work/copy.h"

/*
 * Reading sources in stream order satisfies every access order that a program can allow, except a source that must have
 * been read when the call returns. Hints about overlapping transfers are up to the device.
 */
static CUresult check_attributes(const CUmemcpyAttributes *a)
{
	bool known = a->srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && a->srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
	return known && a->flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, const CUmemcpyAttributes *a, CUstream stream)
{
	bool now = a->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	return now ? memcpy_reading(dst, src, bytes, stream) : pg_cuMemcpyAsync(dst, src, bytes, stream);
}

/* Checks that attributes begin at ascending indices, the first at 0. */
static CUresult check_indices(const size_t *index, size_t n, size_t count)
{
	if (!index || n == 0 || n > count || index[0] != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 1; i < n; i++)
		if (index[i] <= index[i - 1] || index[i] >= count)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/*
 * The copies of a batch are unordered, which the legacy stream does not permit; nor is there a graph node for them. As
 * with NVIDIA's driver, the error leaves the capture valid.
 */
static CUresult check_stream(CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (UNLIKELY(ref.capturing))
		return capture_refuse_only(ref.capturing);
	return ref.stream == WIRE_LEGACY ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_all(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes, size_t *indices,
	size_t n, size_t *failed, CUstream stream)
{
	*failed = SIZE_MAX; /* all of it */
	CUresult r = check_stream(stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (!dsts || !srcs || !sizes || count == 0 || !attributes || check_indices(indices, n, count) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++)
		if (check_attributes(&attributes[i]) != CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0, k = 0; i < count; i++) {
		if (k + 1 < n && indices[k + 1] == i)
			k++;
		r = sizes[i] ? copy(dsts[i], srcs[i], sizes[i], &attributes[k], stream) : CUDA_ERROR_INVALID_VALUE;
		if (r != CUDA_SUCCESS) {
			*failed = i;
			return r;
		}
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
	size_t *indices, size_t n, size_t *failed, CUstream stream)
{
	size_t unused;
	return copy_all(dsts, srcs, sizes, count, attributes, indices, n, failed ? failed : &unused, stream);
}

CUresult pg_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
	size_t *indices, size_t n, CUstream stream)
{
	return pg_cuMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, indices, n, NULL, stream);
}

CUresult pg_cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream)
{
	if (!attributes || check_attributes(attributes) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	return copy(dst, src, bytes, attributes, stream);
}

/* --- boxes: extents are in elements, which are bytes unless an array is involved --- */

static CUresult element_of(const CUmemcpy3DOperand *o, uint64_t *bytes)
{
	if (o->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return o->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	const struct array *a = handle_find(&arrays, (uint64_t)(uintptr_t)o->op.array.array);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	*bytes = a->elementBytes;
	return CUDA_SUCCESS;
}

/* Reports whether n can be multiplied by an element's size without overflow. */
static bool small(size_t n) { return n <= SIZE_MAX / 256; }

static bool small_operand(const CUmemcpy3DOperand *o)
{
	return small(o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? o->op.array.offset.x : o->op.ptr.rowLength);
}

static CUresult operation_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *c)
{
	uint64_t element = 1;
	CUresult r = element_of(&op->src, &element);
	if (r == CUDA_SUCCESS)
		r = element_of(&op->dst, &element);
	if (r != CUDA_SUCCESS)
		return r;
	if (!small(op->extent.width) || !small_operand(&op->src) || !small_operand(&op->dst))
		return CUDA_ERROR_INVALID_VALUE;
	*c = (CUDA_MEMCPY3D){.WidthInBytes = op->extent.width * element, .Height = op->extent.height, .Depth = op->extent.depth};
	const CUmemcpy3DOperand *s = &op->src, *d = &op->dst;
	if (s->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		c->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c->srcArray = s->op.array.array;
		c->srcXInBytes = s->op.array.offset.x * element;
		c->srcY = s->op.array.offset.y;
		c->srcZ = s->op.array.offset.z;
	} else {
		c->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
		c->srcDevice = s->op.ptr.ptr;
		c->srcPitch = (s->op.ptr.rowLength ? s->op.ptr.rowLength : op->extent.width) * element;
		c->srcHeight = s->op.ptr.layerHeight ? s->op.ptr.layerHeight : op->extent.height;
	}
	if (d->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		c->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c->dstArray = d->op.array.array;
		c->dstXInBytes = d->op.array.offset.x * element;
		c->dstY = d->op.array.offset.y;
		c->dstZ = d->op.array.offset.z;
	} else {
		c->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		c->dstDevice = d->op.ptr.ptr;
		c->dstPitch = (d->op.ptr.rowLength ? d->op.ptr.rowLength : op->extent.width) * element;
		c->dstHeight = d->op.ptr.layerHeight ? d->op.ptr.layerHeight : op->extent.height;
	}
	return CUDA_SUCCESS;
}

CUresult pg_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream)
{
	CUDA_MEMCPY3D c;
	if (!op || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	const CUmemcpyAttributes attributes = {.srcAccessOrder = op->srcAccessOrder, .flags = op->flags};
	CUresult r = check_attributes(&attributes);
	if (r == CUDA_SUCCESS)
		r = operation_box(op, &c);
	if (r != CUDA_SUCCESS)
		return r;
	bool now = op->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	return now ? memcpy_box_reading(&c, stream) : pg_cuMemcpy3DAsync_v2(&c, stream);
}

CUresult pg_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream)
{
	if (failed)
		*failed = SIZE_MAX;
	CUresult r = check_stream(stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (count == 0 || !ops || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if ((r = pg_cuMemcpy3DWithAttributesAsync(&ops[i], 0, stream)) != CUDA_SUCCESS) {
			if (failed)
				*failed = i;
			return r;
		}
	return CUDA_SUCCESS;
}

CUresult pg_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream)
{
	return pg_cuMemcpy3DBatchAsync(count, ops, NULL, flags, stream);
}

/* --- managed memory, which never moves --- */

CUresult pg_cuMemPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *where, size_t *indices, size_t n,
	unsigned long long flags, CUstream stream)
{
	if (!at || !sizes || !where || count == 0 || flags != 0 || check_indices(indices, n, count) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_SUCCESS;
	for (size_t i = 0, k = 0; r == CUDA_SUCCESS && i < count; i++) {
		if (k + 1 < n && indices[k + 1] == i)
			k++;
		r = pg_cuMemPrefetchAsync_v2(at[i], sizes[i], where[k], 0, stream);
	}
	return r;
}

/* Without effect: the memory's contents may be discarded, but need not be. */
CUresult pg_cuMemDiscardBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, unsigned long long flags, CUstream stream)
{
	struct stream_ref ref;
	struct range range;
	CUresult r = stream_resolve(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (!at || !sizes || count == 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (sizes[i] == 0 || !range_find(at[i], &range) || range.kind != RANGE_MANAGED || range.size - (at[i] - range.base) < sizes[i])
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *where, size_t *indices, size_t n,
	unsigned long long flags, CUstream stream)
{
	CUresult r = pg_cuMemDiscardBatchAsync(at, sizes, count, flags, stream);
	return r == CUDA_SUCCESS ? pg_cuMemPrefetchBatchAsync(at, sizes, count, where, indices, n, flags, stream) : r;
}
