/* Stream memory waits and writes. A batch of operations is a sequence of single ones, each in stream order. */
#include "core/device.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "work/box.h"
#include "work/callback.h"

enum { ACTION_WRITE = 16, BATCH_MOST = 256 };

struct operation {
	CUdeviceptr address;
	uint64_t value;
	uint32_t action, bytes;
};

static int device_of(const struct stream_ref *ref)
{
	const struct context *c = handle_find(&contexts, ref->contextHandle);
	return c ? c->device : 0;
}

static CUresult check(const struct operation *o, const struct stream_ref *ref)
{
	struct copy_endpoint end;
	int device = device_of(ref);
	if (o->bytes == 8 && !device_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (o->action == CU_STREAM_WAIT_VALUE_NOR && !device_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	return o->address % o->bytes ? CUDA_ERROR_INVALID_VALUE : endpoint_from_address(o->address, o->bytes, true, &end);
}

static CUresult post(const struct operation *o, const struct stream_ref *ref)
{
	if (o->action != ACTION_WRITE)
		atomic_store_explicit(&memopWaits, true, memory_order_relaxed);
	struct stream_value_args args = {.address = o->address, .value = o->value, .action = o->action, .bytes = o->bytes};
	struct packet p = {
		.op = OP_STREAM_VALUE, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args,
		.fixedBytes = sizeof args,
	};
	return ring_post(&p);
}

static CUresult one(CUstream stream, const struct operation *o)
{
	struct stream_ref ref;
	CUresult r = stream_resolve(stream, &ref);
	if (r == CUDA_SUCCESS)
		r = check(o, &ref);
	return r == CUDA_SUCCESS ? post(o, &ref) : r;
}

/*
 * No flush of remote writes is needed: no other device writes to this memory
 * (CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0).
 */
static CUresult wait_of(CUdeviceptr address, uint64_t value, uint32_t bytes, unsigned int flags, struct operation *o)
{
	if (flags & (unsigned)CU_STREAM_WAIT_VALUE_FLUSH)
		return CUDA_ERROR_NOT_SUPPORTED;
	*o = (struct operation){address, value, flags, bytes};
	return flags <= CU_STREAM_WAIT_VALUE_NOR ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult write_of(CUdeviceptr address, uint64_t value, uint32_t bytes, unsigned int flags, struct operation *o)
{
	*o = (struct operation){address, value, ACTION_WRITE, bytes};
	return flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	struct operation o;
	CUresult r = wait_of(address, value, 4, flags, &o);
	return r == CUDA_SUCCESS ? one(stream, &o) : r;
}

CUresult pg_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
	struct operation o;
	CUresult r = wait_of(address, value, 8, flags, &o);
	return r == CUDA_SUCCESS ? one(stream, &o) : r;
}

CUresult pg_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	struct operation o;
	CUresult r = write_of(address, value, 4, flags, &o);
	return r == CUDA_SUCCESS ? one(stream, &o) : r;
}

CUresult pg_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
	struct operation o;
	CUresult r = write_of(address, value, 8, flags, &o);
	return r == CUDA_SUCCESS ? one(stream, &o) : r;
}

/* Translates an operation; bytes are 0 for one without effect: work of a stream sees earlier writes anyway. */
static CUresult operation_of(const CUstreamBatchMemOpParams *p, struct operation *o)
{
	*o = (struct operation){0};
	switch ((unsigned)p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return wait_of(p->waitValue.address, p->waitValue.value, 4, p->waitValue.flags, o);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return wait_of(p->waitValue.address, p->waitValue.value64, 8, p->waitValue.flags, o);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return write_of(p->writeValue.address, p->writeValue.value, 4, p->writeValue.flags, o);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return write_of(p->writeValue.address, p->writeValue.value64, 8, p->writeValue.flags, o);
	case CU_STREAM_MEM_OP_BARRIER:
		return p->memoryBarrier.flags <= 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
	case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult pg_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *all, unsigned int flags)
{
	struct operation o[BATCH_MOST];
	struct stream_ref ref;
	CUresult r = stream_resolve(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (count > BATCH_MOST || (count && !all) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		r = operation_of(&all[i], &o[i]);
		if (r == CUDA_SUCCESS && o[i].bytes)
			r = check(&o[i], &ref);
		if (r != CUDA_SUCCESS)
			return r;
	}
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++)
		if (o[i].bytes)
			r = post(&o[i], &ref);
	return r;
}
