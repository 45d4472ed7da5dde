#include "graph/version.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "graph/graph.h"
#include "graph/user_object.h"
#include "object/context.h"
#include "object/event.h"
#include "work/callback.h"
#include "work/copy.h"

static struct exec_version *left; /* guarded by the graphs' lock */
static _Atomic bool anyLeft;
static struct table hostCopies = HANDLE_TABLE(HANDLE_HOST_COPY, struct host_copy_node, 1000000);

static pthread_mutex_t hostCopyLock = PTHREAD_MUTEX_INITIALIZER; /* held while one runs, which may outlast a failed context */

static void CUDA_CB run_host_copy(void *data)
{
	pthread_mutex_lock(&hostCopyLock);
	const struct host_copy_node *e = handle_find(&hostCopies, (uint64_t)(uintptr_t)data);
	if (!e)
		; /* its context has failed, or was destroyed */
	else if (e->what == HOST_COPY_GATHER)
		box_gather(&e->box, arena_at(e->staging));
	else if (e->what == HOST_COPY_SCATTER)
		box_scatter(&e->box, arena_at(e->staging));
	else if (e->what == HOST_COPY_MOVE)
		box_move(&e->box);
	pthread_mutex_unlock(&hostCopyLock);
}

void version_free(struct exec_version *s)
{
	pthread_mutex_lock(&hostCopyLock);
	while (s->hostCopies) {
		struct host_copy_node *e = s->hostCopies;
		s->hostCopies = e->next;
		callback_drop(e->callback);
		if (e->bytes)
			arena_give(e->staging, e->bytes);
		handle_retire(e);
		handle_free(&hostCopies, e);
	}
	pthread_mutex_unlock(&hostCopyLock);
	struct event *end = handle_find(&events, s->end);
	if (end)
		event_destroy(end);
	object_refs_drop(&s->objectRefs);
	free(s);
}

struct exec_version *version_new(uint64_t context)
{
	struct exec_version *s = calloc(1, sizeof *s);
	if (s)
		s->context = context;
	return s;
}

CUresult version_add_host(struct exec_version *s, CUhostFn function, void *data, const struct box *box, struct host_copy_node **added)
{
	struct host_copy_node *e = handle_new(&hostCopies);
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset((uint8_t *)e + sizeof e->object, 0, sizeof *e - sizeof e->object);
	if (box)
		e->box = *box;
	CUresult r = callback_keep(function ? function : run_host_copy, function ? data : (void *)(uintptr_t)e->object.id, &e->callback);
	if (r != CUDA_SUCCESS) {
		handle_free(&hostCopies, e);
		return r;
	}
	e->what = HOST_COPY_NONE; /* until its caller sets it */
	handle_publish(e);
	e->next = s->hostCopies;
	s->hostCopies = e;
	*added = e;
	return CUDA_SUCCESS;
}

bool version_has_ended(const struct exec_version *s)
{
	const struct event *end = handle_find(&events, s->end);
	if (s->over || !s->end || (end && event_reached(event_word_of(end), s->serial)))
		return true;
	return process_check_alive() != CUDA_SUCCESS; /* an event is destroyed before its context has ended */
}

void versions_context_ended(uint64_t context)
{
	for (struct exec_version *s = left; s; s = s->next)
		s->over = s->over || s->context == context;
}

void versions_sweep(void)
{
	for (struct exec_version **at = &left; *at;) {
		struct exec_version *s = *at;
		if (!version_has_ended(s)) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		version_free(s);
	}
	anyLeft = left != NULL;
}

void versions_synchronised(void)
{
	if (UNLIKELY(atomic_load_explicit(&anyLeft, memory_order_acquire))) {
		GRAPHS_LOCKED; /* the unlock sweeps */
	}
}

void version_retire(struct exec_version *s)
{
	if (!s)
		return;
	s->next = left;
	left = s;
	versions_sweep();
}

/* --- ends of launches --- */

CUresult version_prepare_end(struct exec_version *s)
{
	struct event *end = handle_find(&events, s->end);
	if (!s->ends || end)
		return CUDA_SUCCESS;
	struct context *c = handle_find(&contexts, s->context);
	CUresult r = c ? event_create(c, CU_EVENT_DISABLE_TIMING, &end) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS)
		s->end = end->object.id;
	return r;
}

CUresult version_mark_end(struct exec_version *s, const struct stream_ref *ref)
{
	struct event *end = handle_find(&events, s->end);
	if (!s->ends)
		return CUDA_SUCCESS;
	CUresult r = end ? event_record(end, ref) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS)
		s->serial = atomic_load_explicit(&end->recorded, memory_order_relaxed);
	return r;
}
