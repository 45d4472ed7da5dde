#include "graph/capture.h"

#include <stdlib.h>
#include <string.h>

#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/memory.h"
#include "graph/node.h"
#include "object/context.h"

/* A stream's membership in a capture: the nodes that its next node depends on. */
struct capturing {
	struct capture *capture;
	struct stream *stream;
	struct graph_node **at;
	uint32_t count, room;
	CUgraphNode *shown; /* the array last returned to the program; NULL if none was */
	CUgraphEdgeData *edges;
	struct capturing *next;
};

/* The captured record of an event. */
struct captured {
	uint64_t capture; /* id of the capture */
	uint32_t count;
	CUgraphNode at[];
};

struct capture {
	uint64_t id;
	CUstreamCaptureStatus status;
	CUstreamCaptureMode mode;
	uint64_t thread; /* the thread that began it: see this_thread */
	struct graph *graph;
	bool given; /* the graph belongs to the program and is kept */
	uint64_t context;
	struct stream *origin;
	struct capturing *members;
	struct capture *next;
};

_Atomic uint32_t captures_running;
static struct capture *running; /* guarded by the graphs' lock, as all captures */
static uint64_t ids;
static _Thread_local CUstreamCaptureMode thread_mode __attribute__((tls_model("initial-exec")));

/*
 * Returns the calling thread's number, which no later thread has: another thread can get the address of the data of one
 * that has ended.
 */
static uint64_t this_thread(void)
{
	static uint64_t threads; /* guarded by the graphs' lock */
	static _Thread_local uint64_t number __attribute__((tls_model("initial-exec")));
	if (!number)
		number = ++threads;
	return number;
}

static struct capture *find_capture(uint64_t id)
{
	struct capture *c = running;
	while (c && c->id != id)
		c = c->next;
	return c;
}

static void invalidate(struct capture *c) { c->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED; }

static bool is_active(const struct capture *c) { return c->status == CU_STREAM_CAPTURE_STATUS_ACTIVE; }

static void member_free(struct capturing *m)
{
	atomic_store(&m->stream->capturing, NULL);
	free(m->at);
	free(m->shown);
	free(m->edges);
	free(m);
}

/* Ends a capture; frees its graph unless the flag is set. */
static void end(struct capture *c, bool wanted)
{
	for (struct capture **at = &running; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	while (c->members) {
		struct capturing *m = c->members;
		c->members = m->next;
		member_free(m);
	}
	c->graph->capturing = false;
	if (!wanted && !c->given)
		graph_free(c->graph);
	free(c);
	captures_running--;
}

static CUresult join(struct capture *c, struct stream *s, struct capturing **joined)
{
	struct capturing *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->capture = c;
	m->stream = s;
	m->next = c->members;
	c->members = m;
	atomic_store_explicit(&s->capturing, m, memory_order_release);
	*joined = m;
	return CUDA_SUCCESS;
}

/*
 * Sets *m to the membership of a stream; fails if the stream was capturing and its capture has ended. Another thread may
 * have begun or ended a capture since the reference was resolved.
 */
static CUresult member_of(const struct stream_ref *ref, struct capturing **m)
{
	struct stream *s = ref->stream == WIRE_LEGACY ? NULL : handle_find(&streams, ref->stream);
	*m = s ? atomic_load(&s->capturing) : NULL;
	if (!*m)
		return ref->capturing ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
	return (*m)->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static CUresult come_after(struct capturing *m, struct graph_node *n)
{
	for (uint32_t i = 0; i < m->count; i++)
		if (m->at[i] == n)
			return CUDA_SUCCESS;
	if (m->count == m->room) {
		uint32_t more = m->room ? 2 * m->room : 4;
		void *larger = realloc(m->at, more * sizeof *m->at);
		if (!larger)
			return CUDA_ERROR_OUT_OF_MEMORY;
		m->at = larger;
		m->room = more;
	}
	m->at[m->count++] = n;
	return CUDA_SUCCESS;
}

static CUresult add(struct capturing *m, CUgraphNodeType type, struct graph_node **n)
{
	return graph_add(m->capture->graph, type, m->at, m->count, n);
}

/* Makes the next node of the capture depend on n, if r reports that n was added. */
static CUresult added(struct capturing *m, struct graph_node *n, CUresult r)
{
	if (r != CUDA_SUCCESS) {
		node_remove(n);
		return r;
	}
	m->count = 0;
	return come_after(m, n);
}

static CUresult begin_node(const struct stream_ref *ref, CUgraphNodeType type, struct capturing **m, struct graph_node **n)
{
	CUresult r = member_of(ref, m);
	return r == CUDA_SUCCESS ? add(*m, type, n) : r;
}

/* --- captured calls --- */

CUresult capture_kernel(const struct packed_launch *p, CUfunction handle, const struct function *f)
{
	GRAPHS_LOCKED;
	struct capturing *m;
	struct graph_node *n;
	CUresult r = begin_node(&p->ref, CU_GRAPH_NODE_TYPE_KERNEL, &m, &n);
	if (r != CUDA_SUCCESS)
		return r;
	n->kernel.priority = m->stream->priority;
	return added(m, n, kernel_set(n, handle, f, p));
}

CUresult capture_copy(const struct stream_ref *ref, const struct box *box)
{
	if (box->width == 0 || box->height == 0 || box->depth == 0)
		return CUDA_SUCCESS;
	GRAPHS_LOCKED;
	struct capturing *m;
	struct graph_node *n;
	CUresult r = begin_node(ref, CU_GRAPH_NODE_TYPE_MEMCPY, &m, &n);
	if (r != CUDA_SUCCESS)
		return r;
	n->copy = copy_of(box);
	n->context = ref->contextHandle;
	return added(m, n, CUDA_SUCCESS);
}

CUresult capture_fill(const struct stream_ref *ref, const struct fill_args *a)
{
	GRAPHS_LOCKED;
	struct capturing *m;
	struct graph_node *n;
	CUresult r = begin_node(ref, CU_GRAPH_NODE_TYPE_MEMSET, &m, &n);
	if (r != CUDA_SUCCESS)
		return r;
	n->fill = (CUDA_MEMSET_NODE_PARAMS){
		.dst = a->dst, .pitch = a->pitch, .value = a->value, .elementSize = a->elementSize, .width = a->width, .height = a->height,
	};
	n->context = ref->contextHandle;
	return added(m, n, CUDA_SUCCESS);
}

CUresult capture_host(const struct stream_ref *ref, CUhostFn function, void *data)
{
	GRAPHS_LOCKED;
	struct capturing *m;
	struct graph_node *n;
	CUresult r = begin_node(ref, CU_GRAPH_NODE_TYPE_HOST, &m, &n);
	if (r != CUDA_SUCCESS)
		return r;
	n->host = (CUDA_HOST_NODE_PARAMS){.fn = function, .userData = data};
	return added(m, n, CUDA_SUCCESS);
}

CUresult capture_alloc(const struct stream_ref *ref, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	GRAPHS_LOCKED;
	struct capturing *m;
	struct graph_node *n;
	const struct context *c = handle_find(&contexts, ref->contextHandle);
	CUresult r = c ? begin_node(ref, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &m, &n) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return r == CUDA_SUCCESS ? added(m, n, graph_memory_allocate(n, c, p)) : r;
}

CUresult capture_free(const struct stream_ref *ref, CUdeviceptr address)
{
	GRAPHS_LOCKED;
	struct capturing *m;
	struct graph_node *n;
	CUresult r = begin_node(ref, CU_GRAPH_NODE_TYPE_MEM_FREE, &m, &n);
	return r == CUDA_SUCCESS ? added(m, n, graph_memory_let_go(n, address)) : r;
}

static CUresult add_event(struct capturing *m, CUgraphNodeType type, const struct event *e)
{
	struct graph_node *n;
	CUresult r = add(m, type, &n);
	return r == CUDA_SUCCESS ? added(m, n, node_set_event(n, HANDLE_OF(CUevent, e))) : r;
}

CUresult capture_record(const struct stream_ref *ref, struct event *e, bool external)
{
	GRAPHS_LOCKED;
	struct capturing *m;
	CUresult r = member_of(ref, &m);
	if (r != CUDA_SUCCESS)
		return r;
	if (external)
		return add_event(m, CU_GRAPH_NODE_TYPE_EVENT_RECORD, e);
	struct captured *c = malloc(sizeof *c + m->count * sizeof *c->at);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->capture = m->capture->id;
	c->count = m->count;
	for (uint32_t i = 0; i < m->count; i++)
		c->at[i] = HANDLE_OF(CUgraphNode, m->at[i]);
	capture_event_forget(e);
	atomic_store(&e->captured, c);
	return CUDA_SUCCESS;
}

/* Adds a stream that is in no capture to the event's capture. */
static CUresult join_for(const struct stream_ref *ref, struct capture *c, struct capturing **m)
{
	struct stream *s = ref->stream == WIRE_LEGACY ? NULL : handle_find(&streams, ref->stream);
	if (s && ref->contextHandle == c->context)
		return join(c, s, m);
	invalidate(c);
	return s ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult capture_wait(const struct stream_ref *ref, struct event *e, bool external)
{
	GRAPHS_LOCKED;
	struct capturing *m = NULL;
	CUresult r = member_of(ref, &m);
	if (r != CUDA_SUCCESS)
		return r;
	if (external)
		return m ? add_event(m, CU_GRAPH_NODE_TYPE_WAIT_EVENT, e) : CUDA_ERROR_INVALID_VALUE;
	const struct captured *known = atomic_load(&e->captured);
	if (m && !known && !e->used)
		return CUDA_SUCCESS;
	struct capture *c = known ? find_capture(known->capture) : NULL;
	if (!c && m) {
		invalidate(m->capture);
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (!c)
		return CUDA_ERROR_CAPTURED_EVENT; /* of a capture that has ended: it will never complete */
	if (!is_active(c)) /* a stream in no capture cannot join an invalid one */
		return m ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_INVALID_VALUE;
	if (m && m->capture != c) {
		invalidate(m->capture);
		invalidate(c);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!m)
		r = join_for(ref, c, &m);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < known->count; i++) {
		struct graph_node *n = node_of(known->at[i]);
		if (n)
			r = come_after(m, n);
	}
	return r;
}

/* --- rejected calls --- */

static bool keeps_order(const struct capture *c)
{
	for (const struct capturing *m = c->members; m; m = m->next)
		if (!(m->stream->flags & CU_STREAM_NON_BLOCKING))
			return true;
	return false;
}

CUresult capture_implies(uint64_t context)
{
	GRAPHS_LOCKED;
	CUresult r = CUDA_SUCCESS;
	for (struct capture *c = running; c; c = c->next)
		if (c->context == context && keeps_order(c)) {
			invalidate(c);
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

CUresult capture_refuse_context(uint64_t context)
{
	if (LIKELY(!captures_any()))
		return CUDA_SUCCESS;
	GRAPHS_LOCKED;
	CUresult r = CUDA_SUCCESS;
	for (struct capture *c = running; c; c = c->next)
		if (c->context == context) {
			invalidate(c);
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return r;
}

static CUresult refuse(struct stream *s, bool stays)
{
	GRAPHS_LOCKED;
	struct capturing *m = atomic_load(&s->capturing);
	if (!m)
		return CUDA_ERROR_ILLEGAL_STATE;
	bool active = is_active(m->capture);
	if (!stays)
		invalidate(m->capture);
	return active ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult capture_refuse(struct stream *s) { return refuse(s, false); }
CUresult capture_refuse_only(struct stream *s) { return refuse(s, true); }

CUresult capture_refuse_event(struct event *e)
{
	GRAPHS_LOCKED;
	const struct captured *known = atomic_load(&e->captured);
	struct capture *c = known ? find_capture(known->capture) : NULL;
	if (c)
		invalidate(c);
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_forbids(void)
{
	GRAPHS_LOCKED;
	CUresult r = CUDA_SUCCESS;
	for (struct capture *c = running; c && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED; c = c->next) {
		bool mine = c->thread == this_thread() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool all = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
		if (mine || all) { /* also while it is invalid, until it ends */
			invalidate(c);
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return r;
}

/* --- ends of captures, streams and events --- */

void capture_stream_gone(struct stream *s)
{
	graphs_lock(); /* before the look: another thread may be adding the stream to a capture, and adds no retired one */
	struct capturing *m = atomic_load(&s->capturing);
	if (m && m->capture->origin == s)
		end(m->capture, false);
	else if (m) {
		invalidate(m->capture);
		for (struct capturing **at = &m->capture->members; *at; at = &(*at)->next)
			if (*at == m) {
				*at = m->next;
				break;
			}
		member_free(m);
	}
	graphs_leave();
}

void capture_event_forget(struct event *e) { free(atomic_exchange(&e->captured, NULL)); }

void capture_event_gone(struct event *e)
{
	if (LIKELY(!atomic_load(&e->captured)))
		return;
	graphs_lock();
	capture_event_forget(e);
	graphs_leave();
}

/* --- API calls --- */

static CUresult begin(CUstream handle, struct graph *g, struct graph_node *const *after, size_t count, CUstreamCaptureMode mode)
{
	struct stream_ref ref;
	CUresult r = stream_ref_of(handle, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	struct stream *s = ref.stream == WIRE_LEGACY ? NULL : handle_find(&streams, ref.stream);
	if (!s)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (s->capturing || (g && g->capturing))
		return CUDA_ERROR_ILLEGAL_STATE;
	struct capture *c = calloc(1, sizeof *c);
	struct capturing *m = NULL;
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*c = (struct capture){
		.id = ++ids, .status = CU_STREAM_CAPTURE_STATUS_ACTIVE, .mode = mode, .thread = this_thread(), .graph = g ? g : graph_new(),
		.given = g != NULL, .context = ref.contextHandle, .origin = s, .next = running,
	};
	if (!c->graph) {
		free(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!g)
		handle_publish(c->graph);
	c->graph->capturing = true;
	running = c;
	captures_running++;
	r = join(c, s, &m);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = come_after(m, after[i]);
	if (r != CUDA_SUCCESS)
		end(c, false);
	return r;
}

CUresult pg_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	GRAPHS_LOCKED;
	return (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_ERROR_INVALID_VALUE : begin(stream, NULL, NULL, 0, mode);
}

CUresult pg_cuStreamBeginCapture(CUstream stream) { return pg_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }

CUresult pg_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
	CUstreamCaptureMode mode)
{
	GRAPHS_LOCKED;
	struct graph *g = graph_of(graph);
	struct graph_node **nodes;
	if (!g || g->inner || (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!edges_plain(edges, count))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult r = nodes_of(g, after, count, &nodes);
	if (r == CUDA_SUCCESS)
		r = begin(stream, g, nodes, count, mode);
	free(nodes);
	return r;
}

/* Checks that the end of every stream of a capture precedes the end of its origin stream. */
static CUresult all_joined(const struct capture *c, const struct capturing *origin, bool *joined)
{
	const struct graph *g = c->graph;
	struct graph_node **stack = malloc((g->count + 1) * sizeof *stack);
	uint32_t depth = 0;
	if (!stack)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < g->count; i++)
		g->nodes[i]->mark = 0;
	for (uint32_t i = 0; i < origin->count; i++) {
		origin->at[i]->mark = 1;
		stack[depth++] = origin->at[i];
	}
	while (depth > 0) {
		struct graph_node *n = stack[--depth];
		for (uint32_t k = 0; k < n->count; k++)
			if (!n->before[k]->mark) {
				n->before[k]->mark = 1;
				stack[depth++] = n->before[k];
			}
	}
	free(stack);
	*joined = true;
	for (const struct capturing *m = c->members; m; m = m->next)
		for (uint32_t i = 0; i < m->count; i++)
			*joined = *joined && m->at[i]->mark;
	return CUDA_SUCCESS;
}

/*
 * In a thread that may not end the capture, the call fails but ends the capture, as with NVIDIA's driver (580, on an
 * H200).
 */
CUresult pg_cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	GRAPHS_LOCKED;
	struct stream_ref ref;
	CUresult r = stream_ref_of(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	struct capturing *m = ref.capturing ? atomic_load(&ref.capturing->capturing) : NULL;
	if (!m)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	struct capture *c = m->capture;
	if (c->origin != m->stream) {
		invalidate(c);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	bool joined = true;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread())
		r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else
		r = is_active(c) ? all_joined(c, m, &joined) : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r == CUDA_SUCCESS && !joined)
		r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	*out = r == CUDA_SUCCESS ? HANDLE_OF(CUgraph, c->graph) : NULL;
	end(c, r == CUDA_SUCCESS);
	return r;
}

/*
 * Looks up a stream's membership in a capture; NULL for none, or for the legacy stream while no stream of its context
 * captures.
 */
static CUresult look_up(CUstream stream, const void *out, struct capturing **m)
{
	struct stream_ref ref;
	*m = NULL;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = stream_ref_of(stream, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	for (const struct capture *c = running; c && ref.stream == WIRE_LEGACY; c = c->next)
		if (c->context == ref.contextHandle && keeps_order(c))
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*m = ref.capturing ? atomic_load(&ref.capturing->capturing) : NULL;
	return CUDA_SUCCESS;
}

CUresult pg_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	struct capturing *m;
	GRAPHS_LOCKED;
	CUresult r = look_up(stream, status, &m);
	if (r == CUDA_SUCCESS)
		*status = m ? m->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	return r;
}

/* Updates the array that a program queries; it stays valid until the next query. */
static CUresult show(struct capturing *m)
{
	CUgraphNode *shown = realloc(m->shown, (m->count + 1) * sizeof *shown);
	if (shown)
		m->shown = shown;
	CUgraphEdgeData *edges = realloc(m->edges, (m->count + 1) * sizeof *edges);
	if (edges)
		m->edges = edges;
	if (!shown || !edges)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(edges, 0, (m->count + 1) * sizeof *edges);
	for (uint32_t i = 0; i < m->count; i++)
		shown[i] = HANDLE_OF(CUgraphNode, m->at[i]);
	return CUDA_SUCCESS;
}

CUresult pg_cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **after, const CUgraphEdgeData **edges, size_t *count)
{
	struct capturing *m;
	GRAPHS_LOCKED;
	CUresult r = look_up(stream, status, &m);
	if (r != CUDA_SUCCESS)
		return r;
	*status = m ? m->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	if (!m || !is_active(m->capture))
		return CUDA_SUCCESS;
	if (edges && !after)
		return CUDA_ERROR_INVALID_VALUE;
	if (after && (r = show(m)) != CUDA_SUCCESS)
		return r;
	if (id)
		*id = m->capture->id;
	if (graph)
		*graph = HANDLE_OF(CUgraph, m->capture->graph);
	if (after)
		*after = m->shown;
	if (edges)
		*edges = m->edges;
	if (count)
		*count = m->count;
	return CUDA_SUCCESS;
}

CUresult pg_cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **after, size_t *count)
{
	return pg_cuStreamGetCaptureInfo_v3(stream, status, id, graph, after, NULL, count);
}

CUresult pg_cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return pg_cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult pg_cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
	unsigned int flags)
{
	struct capturing *m;
	struct graph_node **nodes;
	GRAPHS_LOCKED;
	CUresult r = look_up(stream, &m, &m);
	if (r != CUDA_SUCCESS)
		return r;
	if (!m || !is_active(m->capture))
		return CUDA_ERROR_ILLEGAL_STATE;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	if (!edges_plain(edges, count))
		return CUDA_ERROR_NOT_SUPPORTED;
	r = nodes_of(m->capture->graph, after, count, &nodes);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		m->count = 0;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = come_after(m, nodes[i]);
	free(nodes);
	return r;
}

CUresult pg_cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *after, size_t count, unsigned int flags)
{
	return pg_cuStreamUpdateCaptureDependencies_v2(stream, after, NULL, count, flags);
}

CUresult pg_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
