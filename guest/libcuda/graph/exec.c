/*
 * Executable graphs. The host receives the whole graph in one message, at its creation and, after changes, with the
 * next launch; a launch is one small message, however large the graph.
 *
 * A copy from or to memory that the host cannot access is sent as two nodes, one of which is an internal host callback:
 * so the program's memory is read and written in order, at each launch.
 */
#include "graph/exec.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "graph/memory.h"
#include "graph/node.h"
#include "graph/user_object.h"
#include "image/library.h"
#include "object/context.h"
#include "object/event.h"
#include "object/stream_timeline.h"
#include "work/callback.h"
#include "work/copy.h"
#include "work/fill.h"

struct table graph_execs = HANDLE_TABLE(HANDLE_GRAPH_EXEC, struct graph_exec, 60000);

/*
 * A callback, which may be one end of a copy that the guest does itself. It lives in a table, since a callback may
 * become due after its destruction.
 */
struct host_copy_node {
	struct object object;
	struct box box;
	uint64_t staging, bytes; /* in the arena; bytes 0: none */
	enum { HOST_COPY_GATHER, HOST_COPY_SCATTER, HOST_COPY_MOVE, HOST_COPY_NONE } what;
	uint64_t callback; /* 0: none, or dropped with the version */
	struct host_copy_node *next;
};

/* Guest resources of one version of an executable graph; they stay until the version's last launch has completed. */
struct exec_version {
	struct host_copy_node *hostCopies;
	struct object_ref *objectRefs; /* user objects removed from the graph that launches may still use */
	bool ends;                  /* the ends of launches are recorded */
	uint64_t context;           /* handle */
	uint64_t end, serial;       /* the event that launches record behind them, by handle, and its latest serial; 0: none */
	bool over;                  /* its context was destroyed */
	struct exec_version *next;  /* in the list of versions that are no longer launched */
};

static struct exec_version *left;
static _Atomic bool anyLeft;
static struct table hostCopies = HANDLE_TABLE(HANDLE_HOST_COPY, struct host_copy_node, 1000000);

/* --- guest resources --- */

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

static void version_free(struct exec_version *s)
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

static bool has_ended(const struct exec_version *s)
{
	const struct event *end = handle_find(&events, s->end);
	if (s->over || !s->end || (end && event_reached(event_word_of(end), s->serial)))
		return true;
	return process_check_alive() != CUDA_SUCCESS; /* an event is destroyed before its context has ended */
}

static void mark_over(void *object, void *context)
{
	struct graph_exec *e = object;
	if (e->context != *(uint64_t *)context)
		return;
	e->context = 0; /* a later primary context may have the same handle */
	if (e->version)
		e->version->over = true;
}

void versions_context_ended(uint64_t context)
{
	graphs_lock();
	for (struct exec_version *s = left; s; s = s->next)
		s->over = s->over || s->context == context;
	handle_each(&graph_execs, mark_over, &context);
	graph_memory_context_ended(context);
	graphs_leave();
}

void versions_sweep(void)
{
	for (struct exec_version **at = &left; *at;) {
		struct exec_version *s = *at;
		if (!has_ended(s)) {
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

static void version_retire(struct exec_version *s)
{
	if (!s)
		return;
	s->next = left;
	left = s;
	versions_sweep();
}

/* --- encoding for the host --- */

struct writer {
	struct graph_exec *exec;
	struct exec_version *version;
	uint8_t *bytes;
	size_t used, room;
	uint32_t *after; /* predecessors of the node being encoded */
	uint32_t afterCount, afterRoom;
	uint32_t nodes, recordCount;
	uint64_t edges;
	uint64_t records[GRAPH_RECORDS_MOST];
	struct graph_node *bad;
};

#define NO_NODE UINT32_MAX

static CUresult make_room(struct writer *w, size_t bytes)
{
	if (w->room - w->used >= bytes)
		return CUDA_SUCCESS;
	size_t more = 2 * w->room + bytes + 4096;
	uint8_t *larger = realloc(w->bytes, more);
	if (!larger)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->bytes = larger;
	w->room = more;
	return CUDA_SUCCESS;
}

static void put(struct writer *w, const void *from, size_t bytes)
{
	if (bytes)
		memcpy(w->bytes + w->used, from, bytes);
	w->used += bytes;
}

static void put_zeros(struct writer *w, size_t bytes)
{
	memset(w->bytes + w->used, 0, bytes);
	w->used += bytes;
}

#define PAD8(n) (-(size_t)(n) & 7)

/* Encodes a node that depends on those of w->after, and makes it the only one there. */
static CUresult put_node(struct writer *w, uint16_t op, const void *fixed, uint32_t fixedBytes, const void *tail, uint32_t tailBytes)
{
	size_t places = w->afterCount * sizeof *w->after, payload = (size_t)fixedBytes + tailBytes;
	struct {
		uint16_t op, zero;
		uint32_t after, payload, reserved;
	} head = {.op = op, .after = w->afterCount, .payload = (uint32_t)payload};
	CUresult r = make_room(w, sizeof head + places + PAD8(places) + payload + PAD8(payload));
	if (r != CUDA_SUCCESS)
		return r;
	if (w->nodes >= GRAPH_NODES_MOST)
		return CUDA_ERROR_OUT_OF_MEMORY;
	put(w, &head, sizeof head);
	put(w, w->after, places);
	put_zeros(w, PAD8(places));
	put(w, fixed, fixedBytes);
	put(w, tail, tailBytes);
	put_zeros(w, PAD8(payload));
	if (w->afterRoom == 0) {
		w->after = malloc(16 * sizeof *w->after);
		if (!w->after)
			return CUDA_ERROR_OUT_OF_MEMORY;
		w->afterRoom = 16;
	}
	w->after[0] = w->nodes++;
	w->afterCount = 1;
	return CUDA_SUCCESS;
}

static CUresult put_nothing(struct writer *w) { return put_node(w, OP_NOP, NULL, 0, NULL, 0); }

static CUresult put_callback(struct writer *w, uint64_t id)
{
	struct host_callback_args args = {.callback = id};
	return put_node(w, OP_HOST_CALLBACK, &args, sizeof args, NULL, 0);
}

static CUresult put_host(struct writer *w, CUhostFn function, void *data, const struct box *box, struct host_copy_node **added)
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
	e->next = w->version->hostCopies;
	w->version->hostCopies = e;
	*added = e;
	return put_callback(w, e->callback);
}

static CUresult put_box(struct writer *w, const struct box *box, uint64_t staging)
{
	struct copy_args args = box_staged(box, staging);
	return put_node(w, OP_COPY, &args, sizeof args, NULL, 0);
}

static CUresult put_copy(struct writer *w, const struct graph_node *n)
{
	struct box box;
	struct host_copy_node *e;
	CUresult r = box_of(&n->copy, &box);
	if (r != CUDA_SUCCESS)
		return r;
	if (box.width == 0 || box.height == 0 || box.depth == 0)
		return put_nothing(w);
	bool up = box.src.where == AT_HOST, down = box.dst.where == AT_HOST;
	if (up && down) {
		r = put_host(w, NULL, NULL, &box, &e);
		if (r == CUDA_SUCCESS)
			e->what = HOST_COPY_MOVE;
		return r;
	}
	if (!up && !down)
		return put_box(w, &box, 0);
	uint64_t bytes = box.width * box.height * box.depth, staging;
	r = arena_take(bytes, &staging);
	if (r != CUDA_SUCCESS)
		return r;
	if (down && (r = put_box(w, &box, staging)) != CUDA_SUCCESS) {
		arena_give(staging, bytes);
		return r;
	}
	r = put_host(w, NULL, NULL, &box, &e);
	if (r != CUDA_SUCCESS) {
		arena_give(staging, bytes);
		return r;
	}
	e->what = up ? HOST_COPY_GATHER : HOST_COPY_SCATTER;
	e->staging = staging;
	e->bytes = bytes;
	return up ? put_box(w, &box, staging) : CUDA_SUCCESS;
}

static CUresult put_kernel(struct writer *w, const struct graph_node *n)
{
	struct function *f;
	struct launch_args args = n->kernel.shape;
	CUresult r = function_take(n->kernel.function, n->context, &f);
	if (r != CUDA_SUCCESS)
		return r;
	args.function = f->wire;
	r = f->facts.paramBytes == n->kernel.bytes ? launch_check(f, &args) : CUDA_ERROR_INVALID_VALUE;
	function_release(f);
	return r == CUDA_SUCCESS ? put_node(w, OP_LAUNCH, &args, sizeof args, n->kernel.block, n->kernel.bytes) : r;
}

/* The record of a destroyed event has no effect, as with NVIDIA's driver (580, on an H200). */
static CUresult put_event(struct writer *w, const struct graph_node *n)
{
	struct event *e = handle_find(&events, (uint64_t)(uintptr_t)n->event);
	if (!e)
		return n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? put_nothing(w) : CUDA_ERROR_INVALID_HANDLE;
	if (n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
		struct stream_wait_event_args args = {.event = e->object.id};
		return put_node(w, OP_STREAM_WAIT_EVENT, &args, sizeof args, NULL, 0);
	}
	if (w->recordCount == GRAPH_RECORDS_MOST)
		return CUDA_ERROR_NOT_SUPPORTED;
	w->records[w->recordCount++] = e->object.id;
	struct event_record_args args = {.event = e->object.id};
	return put_node(w, OP_EVENT_RECORD, &args, sizeof args, NULL, 0);
}

static CUresult put_graph(struct writer *w, struct graph *g, uint32_t entry);

/* Encodes a child graph between two empty nodes, which stand for its beginning and its end. */
static CUresult put_child(struct writer *w, const struct graph_node *n)
{
	CUresult r = put_nothing(w);
	return r == CUDA_SUCCESS && n->child ? put_graph(w, n->child, w->nodes - 1) : r;
}

static CUresult put_work(struct writer *w, const struct graph_node *n)
{
	struct fill_args fill;
	struct host_copy_node *e;
	CUresult r;
	if (n->context != 0 && n->context != w->exec->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (n->disabled)
		return put_nothing(w);
	switch ((unsigned)n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return put_kernel(w, n);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return put_copy(w, n);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		r = fill_of(&n->fill, &fill);
		return r == CUDA_SUCCESS ? put_node(w, OP_FILL, &fill, sizeof fill, NULL, 0) : r;
	case CU_GRAPH_NODE_TYPE_HOST:
		return put_host(w, n->host.fn, n->host.userData, NULL, &e);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return put_child(w, n);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return put_event(w, n);
	default:
		return put_nothing(w);
	}
}

static CUresult put_after(struct writer *w, uint32_t position)
{
	if (w->afterCount == w->afterRoom) {
		uint32_t more = w->afterRoom ? 2 * w->afterRoom : 16;
		uint32_t *larger = realloc(w->after, more * sizeof *larger);
		if (!larger)
			return CUDA_ERROR_OUT_OF_MEMORY;
		w->after = larger;
		w->afterRoom = more;
	}
	w->after[w->afterCount++] = position;
	return CUDA_SUCCESS;
}

/*
 * Encodes the nodes of a graph after the node at index entry. Afterwards w->after holds the nodes that stand for its
 * end.
 */
static CUresult put_graph(struct writer *w, struct graph *g, uint32_t entry)
{
	struct graph_node **order;
	CUresult r = graph_order(g, &order, &w->bad);
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; i < g->count; i++)
		order[i]->mark = 0;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < g->count; i++) {
		struct graph_node *n = order[i];
		w->afterCount = 0;
		for (uint32_t k = 0; r == CUDA_SUCCESS && k < n->count; k++) {
			n->before[k]->mark = 1; /* it has a successor */
			r = put_after(w, n->before[k]->position);
		}
		if (r == CUDA_SUCCESS && n->count == 0 && entry != NO_NODE)
			r = put_after(w, entry);
		if (r == CUDA_SUCCESS)
			r = put_work(w, n);
		if (r != CUDA_SUCCESS && !w->bad)
			w->bad = n;
		n->position = w->nodes - 1;
	}
	if (entry != NO_NODE && g->count > 0) {
		w->afterCount = 0;
		for (uint32_t i = 0; r == CUDA_SUCCESS && i < g->count; i++)
			if (order[i]->mark == 0)
				r = put_after(w, order[i]->position);
		if (r == CUDA_SUCCESS)
			r = put_nothing(w);
	}
	free(order);
	return r;
}

static CUresult send(const struct graph_exec *e, const struct writer *w)
{
	struct staging s;
	CUresult r = arena_borrow(w->used, &s);
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(arena_at(s.offset), w->bytes, w->used);
	struct graph_create_args args = {.graph = e->object.id, .arenaOffset = s.offset, .length = w->used};
	struct packet p = {.op = OP_GRAPH_CREATE, .context = e->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, NULL, 0);
	arena_return(&s);
	return r;
}

static CUresult write_all(struct writer *w)
{
	uint32_t head[] = {1, 0};
	CUresult r = make_room(w, sizeof head);
	if (r != CUDA_SUCCESS)
		return r;
	w->used = sizeof head;
	r = put_graph(w, w->exec->graph, NO_NODE);
	head[1] = w->nodes;
	memcpy(w->bytes, head, sizeof head);
	return r;
}

/* Sends the current graph to the host. bad, if not NULL, is set to the node that caused the error, if one did. */
static CUresult upload(struct graph_exec *e, struct graph_node **bad)
{
	struct exec_version *version = calloc(1, sizeof *version);
	struct writer *w = calloc(1, sizeof *w);
	uint64_t *records = NULL;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	if (version && w) {
		*w = (struct writer){.exec = e, .version = version};
		version->context = e->context;
		r = write_all(w);
		version->ends = version->hostCopies || object_refs_any(e->graph);
		if (r == CUDA_SUCCESS && w->recordCount && !(records = malloc(w->recordCount * sizeof *records)))
			r = CUDA_ERROR_OUT_OF_MEMORY;
		if (r == CUDA_SUCCESS)
			r = send(e, w);
	}
	if (r == CUDA_SUCCESS) {
		if (w->recordCount)
			memcpy(records, w->records, w->recordCount * sizeof *records);
		free(e->records);
		e->records = records;
		e->recordCount = w->recordCount;
		version_retire(e->version);
		e->version = version;
		e->stale = false;
	} else {
		free(records);
		if (version)
			version_free(version);
	}
	if (w) {
		if (bad)
			*bad = w->bad;
		free(w->bytes);
		free(w->after);
	}
	free(w);
	return r;
}

/* --- creation and destruction --- */

struct graph_exec *exec_of(CUgraphExec handle) { return handle_find(&graph_execs, (uint64_t)(uintptr_t)handle); }

/* Sets *context to the context of all nodes that need one, or 0; false if they are of several contexts. */
static bool one_context(const struct graph *g, uint64_t *context)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		if (n->context && *context && n->context != *context)
			return false;
		if (n->context)
			*context = n->context;
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child && !one_context(n->child, context))
			return false;
	}
	return true;
}

static void exec_free(struct graph_exec *e)
{
	if (e->version)
		object_refs_move_all(&e->version->objectRefs, e->graph);
	version_retire(e->version);
	graph_free(e->graph);
	free(e->records);
	handle_free(&graph_execs, e);
}

#define EXEC_FLAGS \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | \
		CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static CUgraphInstantiateResult why(CUresult r)
{
	switch ((unsigned)r) {
	case CUDA_SUCCESS:
		return CUDA_GRAPH_INSTANTIATE_SUCCESS;
	case CUDA_ERROR_INVALID_VALUE:
		return CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	case CUDA_ERROR_NOT_SUPPORTED:
		return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
	default:
		return CUDA_GRAPH_INSTANTIATE_ERROR;
	}
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(handle);
	struct graph_node *bad = NULL;
	uint64_t context = 0;
	if (!out || !g || (p->flags & ~(cuuint64_t)EXEC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if ((p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) || handle_find(&graph_execs, g->executable))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!one_context(g, &context)) {
		p->result_out = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	struct context *c;
	CUresult r = context_of((CUcontext)(uintptr_t)context, &c);
	if (r != CUDA_SUCCESS)
		return r;
	struct graph_exec *e = handle_new(&graph_execs);
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset((uint8_t *)e + sizeof e->object, 0, sizeof *e - sizeof e->object);
	e->context = c->object.id;
	e->wireContext = c->wire;
	e->flags = p->flags;
	r = graph_copy(g, true, &e->graph);
	if (r != CUDA_SUCCESS) {
		handle_free(&graph_execs, e);
		return r;
	}
	handle_retire(e->graph); /* the program cannot look it up */
	graph_memory_match(e->graph);
	e->id = e->graph->id;
	r = upload(e, &bad);
	p->result_out = why(r);
	p->hErrNode_out = r != CUDA_SUCCESS && bad ? (CUgraphNode)(uintptr_t)bad->origin : NULL;
	if (r != CUDA_SUCCESS) {
		exec_free(e);
		return r;
	}
	handle_publish(e);
	g->executable = g->allocates ? e->object.id : 0;
	*out = HANDLE_OF(CUgraphExec, e);
	return CUDA_SUCCESS;
}

CUresult pg_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = flags};
	return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? CUDA_ERROR_INVALID_VALUE : instantiate(out, graph, &p);
}

CUresult pg_cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t logBytes)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {0};
	CUresult r = instantiate(out, graph, &p);
	if (bad)
		*bad = p.hErrNode_out;
	if (log && logBytes > 0)
		*log = 0;
	return r;
}

/* Instantiation uploads the graph, whatever the stream. */
CUresult pg_cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	struct stream_ref ref;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
		CUresult r = stream_resolve(p->hUploadStream, &ref);
		if (r != CUDA_SUCCESS)
			return r;
	}
	p->hErrNode_out = NULL;
	p->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
	return instantiate(out, graph, p);
}

CUresult pg_cuGraphExecDestroy(CUgraphExec handle)
{
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	if (!e || !handle_retire(e))
		return CUDA_ERROR_INVALID_VALUE;
	if (handle_find(&contexts, e->context)) {
		struct graph_destroy_args args = {.graph = e->object.id};
		struct packet p = {.op = OP_GRAPH_DESTROY, .context = e->wireContext, .anyway = true, .fixed = &args, .fixedBytes = sizeof args};
		ring_post(&p);
	}
	exec_free(e);
	return CUDA_SUCCESS;
}

/* --- launching --- */

/*
 * Creates the event for the ends of launches, if these are recorded: before the first launch, whose end would otherwise
 * remain unknown.
 */
static CUresult prepare_end(struct graph_exec *e)
{
	struct exec_version *s = e->version;
	struct event *end = handle_find(&events, s->end);
	if (!s->ends || end)
		return CUDA_SUCCESS;
	struct context *c = handle_find(&contexts, e->context);
	CUresult r = c ? event_create(c, CU_EVENT_DISABLE_TIMING, &end) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS)
		s->end = end->object.id;
	return r;
}

/* Records an event after a launch of a graph with guest resources; the resources are unused once it completes. */
static CUresult mark_end(struct graph_exec *e, const struct stream_ref *ref)
{
	struct exec_version *s = e->version;
	struct event *end = handle_find(&events, s->end);
	if (!s->ends)
		return CUDA_SUCCESS;
	CUresult r = end ? event_record(end, ref) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS)
		s->serial = atomic_load_explicit(&end->recorded, memory_order_relaxed);
	return r;
}

/* Reports whether an event was destroyed that the host's version of the graph still records. */
static bool records_gone(const struct graph_exec *e)
{
	for (uint32_t i = 0; i < e->recordCount; i++)
		if (!handle_find(&events, e->records[i]))
			return true;
	return false;
}

static CUresult post_launch(const struct graph_exec *e, const struct stream_ref *ref, bool *settles)
{
	struct event_record_args records[GRAPH_RECORDS_MOST];
	struct event *all[GRAPH_RECORDS_MOST];
	struct graph_launch_args args = {.graph = e->object.id};
	struct packet p = {
		.op = OP_GRAPH_LAUNCH, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args,
		.fixedBytes = sizeof args, .tail = records, .tailBytes = (uint32_t)(e->recordCount * sizeof *records),
	};
	if (e->recordCount == 0)
		return ring_post(&p);
	for (uint32_t i = 0; i < e->recordCount; i++)
		if (!(all[i] = handle_find(&events, e->records[i])))
			return CUDA_ERROR_INVALID_HANDLE;
	for (uint32_t i = 0; i < e->recordCount; i++)
		capture_event_forget(all[i]);
	for (uint32_t i = 0; i < e->recordCount; i++)
		*settles |= all[i]->shared;
	return event_record_many(all, e->recordCount, records, ref, &p);
}

CUresult graph_launch(CUgraphExec handle, CUstream stream, bool *settles)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	if (UNLIKELY(ref.capturing))
		return capture_refuse(ref.capturing); /* in any mode, as NVIDIA's driver (580, on an H200) does */
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	if (ref.contextHandle != e->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (e->stale || records_gone(e))
		r = upload(e, NULL);
	if (r == CUDA_SUCCESS)
		r = prepare_end(e);
	if (r == CUDA_SUCCESS && e->graph->allocates)
		r = graph_memory_check(e->graph, &ref, e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (r == CUDA_SUCCESS)
		r = post_launch(e, &ref, settles);
	if (r == CUDA_SUCCESS && e->graph->allocates)
		graph_memory_launched(e->graph, &ref);
	return r == CUDA_SUCCESS ? mark_end(e, &ref) : r;
}

CUresult pg_cuGraphUpload(CUgraphExec handle, CUstream stream)
{
	struct stream_ref ref;
	CUresult r = stream_resolve(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	return e->stale ? upload(e, NULL) : CUDA_SUCCESS;
}

/* --- updates --- */

static struct graph_node *find_within(const struct graph *g, uint64_t origin, uint32_t local)
{
	uint32_t low = 0, high = g->count; /* nodes are sorted by their local ids */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (g->nodes[middle]->local < local)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < g->count && g->nodes[low]->origin == origin)
		return g->nodes[low];
	for (uint32_t i = 0; i < g->count; i++) {
		const struct graph_node *n = g->nodes[i];
		struct graph_node *found = n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child ? find_within(n->child, origin, local) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

/* Finds the executable graph's own node that was created from a node of the original graph. */
static CUresult find(CUgraphExec handle, CUgraphNode node, struct graph_exec **e, struct graph_node **n)
{
	struct graph_node *original = node_of(node);
	*e = exec_of(handle);
	if (!*e || !original)
		return CUDA_ERROR_INVALID_VALUE;
	*n = find_within((*e)->graph, original->object.id, original->local);
	return *n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult exec_node(CUgraphExec handle, CUgraphNode node, CUgraphNodeType type, struct graph_exec **e, struct graph_node **n)
{
	CUresult r = find(handle, node, e, n);
	return r == CUDA_SUCCESS && (*n)->type != type ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult exec_changed(struct graph_exec *e, const struct graph_node *n, CUresult r)
{
	if (r == CUDA_SUCCESS && n->context != 0 && n->context != e->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	e->stale = e->stale || r == CUDA_SUCCESS;
	return r;
}

CUresult pg_cuGraphExecNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams *p)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = p ? find(handle, node, &e, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH && n->type == p->type)
		return exec_changed(e, n, exec_take_child(e, n, graph_of(p->graph.graph)));
	return exec_changed(e, n, node_set(n, p));
}

CUresult pg_cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = p ? exec_node(handle, node, CU_GRAPH_NODE_TYPE_KERNEL, &e, &n) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? exec_changed(e, n, node_set_kernel(n, p)) : r;
}

CUresult pg_cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS wide = {
		.func = p->func, .gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams, .extra = p->extra,
	};
	return pg_cuGraphExecKernelNodeSetParams_v2(handle, node, &wide);
}

/* Kernels, copies and fills can be disabled. */
static CUresult find_switch(CUgraphExec handle, CUgraphNode node, const void *p, struct graph_exec **e, struct graph_node **n)
{
	CUresult r = find(handle, node, e, n);
	return r == CUDA_SUCCESS && (!p || (*n)->type > CU_GRAPH_NODE_TYPE_MEMSET) ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult pg_cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = find_switch(handle, node, &e, &e, &n);
	if (r == CUDA_SUCCESS && n->disabled != !enabled) {
		n->disabled = !enabled;
		e->stale = true;
	}
	return r;
}

CUresult pg_cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int *enabled)
{
	GRAPHS_LOCKED;
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = find_switch(handle, node, enabled, &e, &n);
	if (r == CUDA_SUCCESS)
		*enabled = !n->disabled;
	return r;
}

/* The first difference that keeps one graph from replacing another: a node and, for an edge, its source. */
struct difference {
	CUgraphExecUpdateResult result;
	const struct graph_node *at, *from;
};

static bool differ(struct difference *d, CUgraphExecUpdateResult result, const struct graph_node *at, const struct graph_node *from)
{
	*d = (struct difference){.result = result, .at = at, .from = from};
	return true;
}

static bool comes_after(const struct graph_node *n, uint32_t position)
{
	for (uint32_t k = 0; k < n->count; k++)
		if (n->before[k]->position == position)
			return true;
	return false;
}

static bool topologies_differ(const struct graph *mine, const struct graph *other, struct difference *d)
{
	if (mine->count != other->count)
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
	for (uint32_t i = 0; i < mine->count; i++)
		mine->nodes[i]->position = other->nodes[i]->position = i;
	for (uint32_t i = 0; i < mine->count; i++) {
		const struct graph_node *m = mine->nodes[i], *o = other->nodes[i];
		if (m->count != o->count)
			return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, o, NULL);
		for (uint32_t k = 0; k < o->count; k++)
			if (m->before[k]->position != o->before[k]->position && !comes_after(m, o->before[k]->position))
				return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, o, o->before[k]);
	}
	return false;
}

/* Nodes correspond by the order of their creation. A difference of topology takes precedence over one of types. */
static bool graphs_differ(const struct graph *mine, const struct graph *other, struct difference *d)
{
	if (topologies_differ(mine, other, d))
		return true;
	for (uint32_t i = 0; i < mine->count; i++) {
		const struct graph_node *m = mine->nodes[i], *o = other->nodes[i];
		if (m->type != o->type)
			return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, o, NULL);
		bool memory = m->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || m->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
		if (memory && m->memory.of != o->memory.of)
			return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, o, NULL);
		if (m->context != o->context)
			return differ(d, m->type == CU_GRAPH_NODE_TYPE_KERNEL ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
			                                                     : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, o, NULL);
		if (m->type == CU_GRAPH_NODE_TYPE_GRAPH && m->child && o->child && graphs_differ(m->child, o->child, d))
			return true;
	}
	return false;
}

/* Replaces the references to user objects by those of the other graph; earlier launches may still use the old ones. */
static CUresult adopt_keeps(struct graph_exec *e, struct graph *mine, const struct graph *other)
{
	struct object_ref *before = mine->objectRefs;
	mine->objectRefs = NULL;
	CUresult r = object_refs_copy(mine, other);
	if (r != CUDA_SUCCESS) {
		object_refs_drop(&mine->objectRefs);
		mine->objectRefs = before;
	} else if (has_ended(e->version))
		object_refs_drop(&before);
	else
		object_refs_move(&e->version->objectRefs, &before);
	return r;
}

static CUresult adopt(struct graph_exec *e, struct graph *mine, const struct graph *other)
{
	CUresult r = adopt_keeps(e, mine, other);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < mine->count; i++) {
		struct graph_node *m = mine->nodes[i];
		const struct graph_node *o = other->nodes[i];
		r = m->type == CU_GRAPH_NODE_TYPE_GRAPH && m->child && o->child ? adopt(e, m->child, o->child) : node_take(m, o);
	}
	return r;
}

/*
 * Copies the parameters of a child graph's nodes from another graph of the same shape; the program keeps its node
 * handles.
 */
CUresult exec_take_child(struct graph_exec *e, struct graph_node *n, const struct graph *child)
{
	struct difference d;
	if (!child || !n->child)
		return CUDA_ERROR_INVALID_VALUE;
	return graphs_differ(n->child, child, &d) ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : adopt(e, n->child, child);
}

CUresult pg_cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	GRAPHS_LOCKED;
	struct graph_exec *e = exec_of(handle);
	struct graph *g = graph_of(graph);
	struct difference d = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	if (!e || !g || !info)
		return CUDA_ERROR_INVALID_VALUE;
	bool differs = graphs_differ(e->graph, g, &d);
	CUresult r = differs ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : adopt(e, e->graph, g);
	if (r == CUDA_SUCCESS)
		e->stale = true;
	else if (!differs)
		d.result = CU_GRAPH_EXEC_UPDATE_ERROR;
	*info = (CUgraphExecUpdateResultInfo){
		.result = d.result, .errorNode = d.at ? HANDLE_OF(CUgraphNode, d.at) : NULL, .errorFromNode = d.from ? HANDLE_OF(CUgraphNode, d.from) : NULL,
	};
	return r;
}

CUresult pg_cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode *bad, CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult r = result ? pg_cuGraphExecUpdate_v2(handle, graph, &info) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		*result = info.result;
	if (bad)
		*bad = info.errorNode;
	return r;
}

