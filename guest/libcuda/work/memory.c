#include "work/memory.h"

#include "core/arena.h"
#include "core/ring.h"
#include "core/zz_wire.h"
#include "object/stream_timeline.h"
#include "work/advice.h"
#include "work/hostmap.h"
#include "work/pool.h"
#include "work/pool_share.h"

#define ALLOCATION_MOST (UINT64_C(1) << 46)
CUresult memory_give(uint32_t wire, uint64_t address)
{
	struct mem_free_args args = {.address = address};
	struct packet p = {.op = OP_MEM_FREE, .context = wire, .fixed = &args, .fixedBytes = sizeof args};
	return ring_post(&p);
}

CUresult memory_take(struct context *c, uint64_t bytes, uint64_t *address)
{
	if (bytes > ALLOCATION_MOST)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct mem_alloc_args args = {.size = bytes};
	struct mem_alloc_result answer;
	struct packet p = {.op = OP_MEM_ALLOC, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && pools_trim())
		r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		*address = answer.address;
	return r;
}

CUresult memory_alloc(struct context *c, uint64_t bytes, uint64_t *address)
{
	CUresult r = memory_take(c, bytes, address);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range = {.base = *address, .size = bytes, .kind = RANGE_DEVICE, .context = c->object.id};
	if (range_add_fresh(&range))
		return CUDA_SUCCESS;
	memory_give(c->wire, *address);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult memory_free(uint64_t address)
{
	struct range range;
	if (!range_remove(address, RANGE_DEVICE, &range))
		return CUDA_ERROR_INVALID_VALUE;
	struct context *owner = handle_find(&contexts, range.context);
	return owner ? memory_give(owner->wire, address) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult memory_pin(struct context *c, uint64_t bytes, enum range_kind kind, uint32_t flags, uint64_t *address)
{
	if (!process.arenaShared)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t offset;
	CUresult r = arena_take(bytes, &offset);
	if (r != CUDA_SUCCESS)
		return r;
	struct range range = {
		.base = (uint64_t)(uintptr_t)arena_at(offset), .size = bytes, .kind = kind, .context = c->object.id, .flags = flags,
	};
	if (!range_add(&range)) {
		arena_give(offset, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address = range.base;
	return CUDA_SUCCESS;
}

static void give_pinned(const struct range *range)
{
	if (range->kind == RANGE_MAPPED) {
		hostmap_drop(range->base);
		return;
	}
	if (range->kind == RANGE_MANAGED)
		advice_forget(range->base);
	arena_give(arena_offset(range->base), range->size);
}

CUresult memory_unpin(const struct range *range)
{
	CUresult r = contexts_drain();
	give_pinned(range);
	return r;
}

void memory_context_ends(uint64_t context)
{
	struct range gone;
	while (range_remove_context(context, false, &gone))
		;
	pool_context_ends(context);
	imports_context_ends(context);
}

void memory_context_ended(uint64_t context)
{
	struct range gone;
	while (range_remove_context(context, true, &gone))
		give_pinned(&gone); /* no other work uses it, and that may wait for this thread's next call */
	timeline_context_ended(context);
}
