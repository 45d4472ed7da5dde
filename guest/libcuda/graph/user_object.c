#include "graph/user_object.h"

#include <stdlib.h>

#include "core/zz_impl.h"

struct user_object {
	struct object object;
	void *data;
	CUhostFn destroy;
	uint64_t references;
	struct user_object *next; /* in the list of those that are due */
};

/* A graph's references to a user object. */
struct object_ref {
	struct user_object *object;
	uint32_t count;
	struct object_ref *next;
};

static struct table objects = HANDLE_TABLE(HANDLE_USER_OBJECT, struct user_object, 60000);
static struct user_object *due; /* guarded by the graphs' lock */
static _Atomic bool any_due;

static void release(struct user_object *o, uint64_t count)
{
	o->references -= count;
	if (o->references > 0)
		return;
	handle_retire(o);
	o->next = due;
	due = o;
	any_due = true;
}

void destructors_run(void)
{
	if (!any_due)
		return;
	graphs_lock();
	struct user_object *o = due;
	due = NULL;
	any_due = false;
	graphs_leave();
	while (o) {
		struct user_object *next = o->next;
		CUhostFn destroy = o->destroy;
		void *data = o->data;
		bool within = thread.inCallback;
		handle_free(&objects, o);
		thread.inCallback = true;
		destroy(data);
		thread.inCallback = within;
		o = next;
	}
}

static CUresult keep(struct graph *g, struct user_object *o, uint32_t count)
{
	struct object_ref *k = g->objectRefs;
	while (k && k->object != o)
		k = k->next;
	if (k) {
		if (count > UINT32_MAX - k->count)
			return CUDA_ERROR_INVALID_VALUE;
		k->count += count;
		return CUDA_SUCCESS;
	}
	k = malloc(sizeof *k);
	if (!k)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*k = (struct object_ref){.object = o, .count = count, .next = g->objectRefs};
	g->objectRefs = k;
	return CUDA_SUCCESS;
}

CUresult object_refs_copy(struct graph *to, const struct graph *from)
{
	for (const struct object_ref *k = from->objectRefs; k; k = k->next) {
		CUresult r = keep(to, k->object, 1);
		if (r != CUDA_SUCCESS)
			return r;
		k->object->references++;
	}
	return CUDA_SUCCESS;
}

void object_refs_drop(struct object_ref **list)
{
	while (*list) {
		struct object_ref *k = *list;
		*list = k->next;
		release(k->object, k->count);
		free(k);
	}
}

void object_refs_move(struct object_ref **to, struct object_ref **from)
{
	while (*to)
		to = &(*to)->next;
	*to = *from;
	*from = NULL;
}

static struct graph *within(const struct graph *g, uint32_t i)
{
	return g->nodes[i]->type == CU_GRAPH_NODE_TYPE_GRAPH ? g->nodes[i]->child : NULL;
}

void object_refs_move_all(struct object_ref **to, struct graph *from)
{
	object_refs_move(to, &from->objectRefs);
	for (uint32_t i = 0; i < from->count; i++)
		if (within(from, i))
			object_refs_move_all(to, within(from, i));
}

bool object_refs_any(const struct graph *g)
{
	bool any = g->objectRefs != NULL;
	for (uint32_t i = 0; i < g->count && !any; i++)
		any = within(g, i) && object_refs_any(within(g, i));
	return any;
}

static struct user_object *find(CUuserObject handle) { return handle_find(&objects, (uint64_t)(uintptr_t)handle); }

CUresult pg_cuUserObjectCreate(CUuserObject *out, void *data, CUhostFn destroy, unsigned int references, unsigned int flags)
{
	GRAPHS_LOCKED;
	if (!out || !destroy || references == 0 || references > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	struct user_object *o = handle_new(&objects);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->data = data;
	o->destroy = destroy;
	o->references = references;
	handle_publish(o);
	*out = HANDLE_OF(CUuserObject, o);
	return CUDA_SUCCESS;
}

CUresult pg_cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
	GRAPHS_LOCKED;
	struct user_object *o = find(handle);
	if (!o || count == 0 || count > INT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	o->references += count;
	return CUDA_SUCCESS;
}

CUresult pg_cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
	GRAPHS_LOCKED;
	struct user_object *o = find(handle);
	if (!o || count == 0 || count > o->references)
		return CUDA_ERROR_INVALID_VALUE;
	release(o, count);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned int count, unsigned int flags)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	struct user_object *o = find(handle);
	if (!g || !o || count == 0 || count > INT32_MAX || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = keep(g, o, count);
	if (r == CUDA_SUCCESS && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
		o->references += count;
	return r;
}

CUresult pg_cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned int count)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	struct user_object *o = find(handle);
	if (!g || !o || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct object_ref **at = &g->objectRefs; *at; at = &(*at)->next) {
		struct object_ref *k = *at;
		if (k->object != o)
			continue;
		if (count > k->count)
			return CUDA_ERROR_INVALID_VALUE;
		k->count -= count;
		if (k->count == 0) {
			*at = k->next;
			free(k);
		}
		release(o, count);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}
