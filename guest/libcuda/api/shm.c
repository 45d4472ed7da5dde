/* Device segments: the host owns them, and the table of ranges contains the attached ones. */
#include "object/context.h"
#include "cuda_shm.h"
#include "core/range.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"

CUresult pg_cuShmGet(int *id, int key, size_t bytesize, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!id || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct segment_get_args args = {.key = (uint32_t)key, .bytes = bytesize};
	struct segment_get_result answer;
	struct packet p = {.op = OP_SEGMENT_GET, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		*id = (int)answer.segment;
	return r;
}

static CUresult detach(struct context *c, uint64_t address)
{
	struct segment_detach_args args = {.address = address};
	struct packet p = {.op = OP_SEGMENT_DETACH, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	return ring_call(&p, NULL, 0);
}

CUresult pg_cuShmAt(CUdeviceptr *dptr, int id, unsigned int flags)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct segment_attach_args args = {.segment = (uint32_t)id};
	struct segment_attach_result answer;
	struct packet p = {.op = OP_SEGMENT_ATTACH, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, &answer, sizeof answer);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range = {.base = answer.address, .size = answer.bytes, .kind = RANGE_SEGMENT, .context = c->object.id};
	if (!range_add_fresh(&range)) {
		detach(c, answer.address);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*dptr = answer.address;
	return CUDA_SUCCESS;
}

CUresult pg_cuShmDt(CUdeviceptr dptr)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range;
	if (!range_remove(dptr, RANGE_SEGMENT, &range))
		return CUDA_ERROR_INVALID_VALUE;
	struct context *owner = handle_find(&contexts, range.context);
	return owner ? detach(owner, dptr) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

enum { ACTION_REMOVE = 1, ACTION_TELL = 2 };

CUresult pg_cuShmCtl(int id, int command, void *argument)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (command != CU_SHM_REMOVE && (command != CU_SHM_STAT || !argument))
		return CUDA_ERROR_INVALID_VALUE;
	struct segment_control_args args = {
		.segment = (uint32_t)id, .action = command == CU_SHM_REMOVE ? ACTION_REMOVE : ACTION_TELL,
	};
	struct segment_control_result answer;
	struct packet p = {.op = OP_SEGMENT_CONTROL, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS && command == CU_SHM_STAT)
		*(CUshminfo *)argument = (CUshminfo){answer.bytes, (int)answer.key, answer.attached};
	return r;
}
