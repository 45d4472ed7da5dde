#include "graph/encode.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/zz_wire.h"
#include "graph/graph.h"
#include "image/library.h"
#include "object/event.h"
#include "work/copy.h"
#include "work/fill.h"

struct writer {
	struct graph_encoding out;
	uint64_t context; /* handle */
	struct exec_version *version;
	size_t room; /* of out.bytes */
	uint32_t *after; /* predecessors of the node being encoded */
	uint32_t afterCount, afterRoom;
	uint32_t nodes;
};

#define NO_NODE UINT32_MAX

static CUresult make_room(struct writer *w, size_t bytes)
{
	if (w->room - w->out.used >= bytes)
		return CUDA_SUCCESS;
	size_t more = 2 * w->room + bytes + 4096;
	uint8_t *larger = realloc(w->out.bytes, more);
	if (!larger)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->out.bytes = larger;
	w->room = more;
	return CUDA_SUCCESS;
}

static void put(struct writer *w, const void *from, size_t bytes)
{
	if (bytes)
		memcpy(w->out.bytes + w->out.used, from, bytes);
	w->out.used += bytes;
}

static void put_zeros(struct writer *w, size_t bytes)
{
	memset(w->out.bytes + w->out.used, 0, bytes);
	w->out.used += bytes;
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
	CUresult r = version_add_host(w->version, function, data, box, added);
	return r == CUDA_SUCCESS ? put_callback(w, (*added)->callback) : r;
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
	if (w->out.recordCount == GRAPH_RECORDS_MOST)
		return CUDA_ERROR_NOT_SUPPORTED;
	w->out.records[w->out.recordCount++] = e->object.id;
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
	if (n->context != 0 && n->context != w->context)
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
	CUresult r = graph_order(g, &order, &w->out.bad);
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
		if (r != CUDA_SUCCESS && !w->out.bad)
			w->out.bad = n;
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

CUresult graph_encode(struct graph *g, uint64_t context, struct exec_version *version, struct graph_encoding *out)
{
	uint32_t head[] = {1, 0};
	struct writer w = {.context = context, .version = version};
	CUresult r = make_room(&w, sizeof head);
	if (r == CUDA_SUCCESS) {
		w.out.used = sizeof head;
		r = put_graph(&w, g, NO_NODE);
		head[1] = w.nodes;
		memcpy(w.out.bytes, head, sizeof head);
	}
	free(w.after);
	*out = w.out;
	return r;
}
