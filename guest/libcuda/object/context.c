#include "object/context.h"

#include "core/ring.h"
#include "core/zz_wire.h"

struct table contexts = HANDLE_TABLE(HANDLE_CONTEXT, struct context, 65535);

CUresult context_any(void)
{
	uint64_t top = context_top();
	if (UNLIKELY(top == 0))
		return CUDA_ERROR_INVALID_CONTEXT;
	return LIKELY(handle_find(&contexts, top)) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_current(struct context **context)
{
	uint64_t top = context_top();
	if (UNLIKELY(top == 0))
		return CUDA_ERROR_INVALID_CONTEXT;
	struct context *c = handle_find(&contexts, top);
	if (UNLIKELY(!c))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*context = c;
	return context_error(c->wire);
}

CUresult context_of(CUcontext handle, struct context **context)
{
	if (!handle)
		return context_current(context);
	*context = handle_find(&contexts, (uint64_t)(uintptr_t)handle);
	return *context ? context_error((*context)->wire) : CUDA_ERROR_INVALID_CONTEXT;
}

struct drain {
	uint64_t context; /* handle of the context with the errors that the caller returns */
	CUresult result;
};

/* Blocks until queued work of a context, which may use the memory, has completed, whatever its result. */
static void drain(void *object, void *argument)
{
	struct context *c = object;
	struct drain *d = argument;
	struct packet p = {.op = OP_CONTEXT_SYNCHRONIZE, .context = c->wire};
	CUresult r = ring_call(&p, NULL, 0);
	if (c->object.id == d->context)
		d->result = r;
}

CUresult contexts_drain(void)
{
	struct drain d = {.context = context_top(), .result = CUDA_SUCCESS};
	handle_each(&contexts, drain, &d);
	return d.result;
}
