#include "work/ipc.h"

#include "core/ring.h"
#include "object/context.h"

enum { TRIES = 100 };

/* The host lends memory only while no work uses it, and does not wait for work that may depend on this process. */
CUresult ipc_lend(uint64_t address, struct mem_lend_result *loan)
{
	struct mem_lend_args args = {.address = address};
	struct packet p = {.op = OP_MEM_LEND, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r;
	for (int i = 0; (r = ring_call(&p, loan, sizeof *loan)) == CUDA_ERROR_NOT_READY; i++) {
		if (i == TRIES)
			return CUDA_ERROR_MAP_FAILED;
		contexts_drain();
	}
	return r;
}

CUresult ipc_give_back(const struct context *c, uint64_t address)
{
	struct segment_detach_args args = {.address = address};
	struct packet p = {.op = OP_SEGMENT_DETACH, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	return ring_call(&p, NULL, 0);
}

CUresult ipc_borrow(const struct context *c, const struct mem_lend_result *loan, uint64_t *address)
{
	struct mem_borrow_result answer;
	struct mem_borrow_args args = {.tag = loan->tag, .offset = loan->offset, .bytes = loan->bytes, .segment = loan->segment};
	struct packet p = {.op = OP_MEM_BORROW, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		*address = answer.address;
	return r;
}
