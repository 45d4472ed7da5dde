/*
 * Copies. The worker copies memory that it can access (device memory, arrays, the arena) by itself. Pageable memory is
 * sent in the packet if it is small, else through staging blocks: the guest fills one while the worker empties the
 * previous one.
 */
#include "work/copy.h"

#include <string.h>

#include "core/arena.h"
#include "core/device_printf.h"
#include "core/ring.h"
#include "core/zz_wire.h"

enum {
	INLINE_UP = 4096,  /* largest number of bytes sent in the packet */
	INLINE_DOWN = 224, /* largest number of bytes returned in the reply */
};

bool stream_syncs(const struct stream_ref *ref)
{
	const struct context *c = handle_find(&contexts, ref->contextHandle);
	return c && (c->flags & CU_CTX_SYNC_MEMOPS);
}

/* The part of a box that one packet copies. */
struct piece {
	uint64_t x, y, z; /* within the box; x in bytes */
	uint64_t width, height;
};

static void advance(struct copy_endpoint *e, const struct piece *p)
{
	if (e->where == AT_ARRAY) {
		e->x += p->x;
		e->y += p->y;
		e->z += p->z;
		return;
	}
	e->address += (p->z * e->height + p->y) * e->pitch + p->x;
}

static uint8_t kind_of(const struct copy_endpoint *e, bool inlined)
{
	if (inlined)
		return END_INLINE;
	return e->where == AT_DEVICE ? END_DEVICE : e->where == AT_ARRAY ? END_ARRAY : END_ARENA;
}

/* One packet: a copy between endpoints that the worker can access, or with the bytes at data inline. */
struct transfer {
	struct copy_endpoint dst, src;
	uint64_t width, height, depth;
	uint32_t release;
	bool inlineSource, inlineTarget;
	const void *data;
	uint32_t dataBytes;
};

static struct copy_args args_of(const struct transfer *t, uint8_t dstKind, uint8_t srcKind)
{
	return (struct copy_args){
		.dstKind = dstKind, .srcKind = srcKind, .dst = t->dst.address, .src = t->src.address,
		.width = t->width, .height = t->height, .depth = t->depth,
		.dstPitch = t->dst.pitch, .dstHeight = t->dst.height, .srcPitch = t->src.pitch, .srcHeight = t->src.height,
		.dstX = t->dst.x, .dstY = t->dst.y, .dstZ = t->dst.z, .srcX = t->src.x, .srcY = t->src.y, .srcZ = t->src.z,
		.release = t->release,
	};
}

/* Sends a transfer; call is NULL for one without a reply. */
static CUresult send_transfer(const struct stream_ref *ref, const struct transfer *t, struct call *call)
{
	struct packet p = {
		.context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .tail = t->data, .tailBytes = t->dataBytes,
	};
	uint8_t dstKind = kind_of(&t->dst, t->inlineTarget), srcKind = kind_of(&t->src, t->inlineSource);
	struct copy_linear_args line;
	struct copy_args box;
	if (t->height == 1 && t->depth == 1 && dstKind != END_ARRAY && srcKind != END_ARRAY) {
		line = (struct copy_linear_args){
			.dst = t->dst.address, .src = t->src.address, .length = t->width,
			.dstKind = dstKind, .srcKind = srcKind, .release = t->release,
		};
		p.op = OP_COPY_LINEAR;
		p.fixed = &line;
		p.fixedBytes = sizeof line;
	} else {
		box = args_of(t, dstKind, srcKind);
		p.op = OP_COPY;
		p.fixed = &box;
		p.fixedBytes = sizeof box;
	}
	return call ? call_start(call, &p) : ring_post(&p);
}

static CUresult send_and_maybe_wait(const struct stream_ref *ref, const struct transfer *t, bool wait)
{
	struct call call = {0};
	CUresult r = send_transfer(ref, t, wait ? &call : NULL);
	return r == CUDA_SUCCESS && wait ? call_finish(&call, NULL, 0, NULL) : r;
}

/*
 * Copies the bulk of the data: with the processor's string move, where it is fast; it is as fast as any loop within the
 * caches, and faster beyond them.
 */
#if defined(__x86_64__)
#include <cpuid.h>

static bool has_fast_move(void)
{
	static _Atomic int known; /* 0: unknown, 1: no, 2: yes */
	int k = atomic_load_explicit(&known, memory_order_relaxed);
	if (UNLIKELY(k == 0)) {
		unsigned a, b = 0, c, d;
		k = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 9) ? 2 : 1;
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k == 2;
}

/*
 * Where the target is less than 32 bytes ahead of the source within a page, as malloc's memory is relative to a staging
 * block, AMD's Zen 3 executes a string move, and so memcpy, a byte at a time: at a tenth of the speed. Short pieces,
 * which memcpy copies in a loop, keep their speed if the last one is copied first.
 */
static bool aliases(const void *to, const void *from)
{
	return (((uintptr_t)to - (uintptr_t)from) & 4095) - 1 < 31;
}

static void move_backwards(uint8_t *to, const uint8_t *from, size_t bytes)
{
	enum { PIECE = 2048 };
	size_t whole = bytes & ~(size_t)(PIECE - 1);
	memcpy(to + whole, from + whole, bytes - whole);
	for (size_t at = whole; at > 0; at -= PIECE)
		memcpy(to + at - PIECE, from + at - PIECE, PIECE);
}

static void move(void *to, const void *from, size_t bytes)
{
	if (bytes < 4096 || !has_fast_move())
		memcpy(to, from, bytes);
	else if (aliases(to, from))
		move_backwards(to, from, bytes);
	else
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#else
static void move(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
#endif

static void copy_rows(uint8_t *to, uint64_t toPitch, const uint8_t *from, uint64_t fromPitch, const struct piece *p)
{
	if (toPitch == p->width && fromPitch == p->width) {
		move(to, from, p->width * p->height);
		return;
	}
	for (uint64_t row = 0; row < p->height; row++)
		move(to + row * toPitch, from + row * fromPitch, p->width);
}

static uint8_t *host_at(const struct copy_endpoint *e, const struct piece *p)
{
	struct copy_endpoint at = *e;
	advance(&at, p);
	return (uint8_t *)(uintptr_t)at.address;
}

/* Advances to the next piece of a box, of at most limit bytes; false after the last one. p starts as zeros. */
static bool next_piece(const struct box *b, uint64_t limit, struct piece *p)
{
	if (p->width != 0) {
		p->x += p->width;
		if (p->x == b->width) {
			p->x = 0;
			p->y += p->height;
		}
		if (p->y == b->height) {
			p->y = 0;
			p->z++;
		}
		if (p->z == b->depth)
			return false;
	}
	uint64_t left = b->width - p->x;
	p->width = left < limit ? left : limit;
	p->height = 1;
	if (p->width == b->width) {
		uint64_t fit = limit / b->width, rows = b->height - p->y;
		p->height = rows < fit ? rows : fit;
	}
	return true;
}

static bool is_last(const struct box *b, const struct piece *p)
{
	return p->x + p->width == b->width && p->y + p->height == b->height && p->z + 1 == b->depth;
}

/* Pieces are small enough that filling and emptying overlap, also in a medium-sized copy, if possible. */
static uint64_t piece_limit(const struct box *b)
{
	bool beside = atomic_load_explicit(&process.header->spinNanoseconds, memory_order_relaxed) != 0;
	uint64_t part = b->width * b->height / 16 * b->depth, most = staging_limit(beside);
	if (!beside)
		return most;
	uint64_t least = most < 128 << 10 ? most : 128 << 10;
	return part < least ? least : part < most ? part : most;
}

static bool is_little(const struct box *b, uint64_t limit)
{
	return b->width <= limit && b->height <= limit && b->depth == 1 && b->width * b->height <= limit;
}

static CUresult upload_inline(const struct stream_ref *ref, const struct box *b, bool wait)
{
	uint8_t packed[INLINE_UP];
	struct piece all = {.width = b->width, .height = b->height};
	struct transfer t = {
		.dst = b->dst, .width = b->width, .height = b->height, .depth = 1, .inlineSource = true,
		.data = packed, .dataBytes = (uint32_t)(b->width * b->height),
	};
	if (b->height == 1 || b->src.pitch == b->width)
		t.data = (const void *)(uintptr_t)b->src.address;
	else
		copy_rows(packed, b->width, (const uint8_t *)(uintptr_t)b->src.address, b->src.pitch, &all);
	t.src.pitch = b->width;
	t.src.height = b->height;
	return send_and_maybe_wait(ref, &t, wait);
}

static struct transfer staged(const struct box *b, const struct piece *p, const struct staging *s, bool up)
{
	struct copy_endpoint block = {.where = AT_ARENA, .address = s->offset, .pitch = p->width, .height = p->height};
	struct transfer t = {
		.dst = up ? b->dst : block, .src = up ? block : b->src, .width = p->width, .height = p->height, .depth = 1,
		.release = up ? s->release : 0,
	};
	advance(up ? &t.dst : &t.src, p);
	return t;
}

/* A copy that is waited for synchronises after so many bytes, so that it reuses blocks that are in the caches. */
#define STRIDE (UINT64_C(1) << 20)

static CUresult upload_piece(const struct stream_ref *ref, const struct box *b, const struct piece *p, struct call *call)
{
	struct staging s;
	CUresult r = staging_take(p->width * p->height, &s);
	if (r != CUDA_SUCCESS)
		return r;
	copy_rows(arena_at(s.offset), p->width, host_at(&b->src, p), b->src.pitch, p);
	struct transfer t = staged(b, p, &s, true);
	r = send_transfer(ref, &t, call);
	if (r == CUDA_SUCCESS)
		staging_pass(&s);
	else
		staging_give(&s);
	return r;
}

static CUresult upload(const struct stream_ref *ref, const struct box *b, bool wait)
{
	if (is_little(b, INLINE_UP))
		return upload_inline(ref, b, wait);
	uint64_t limit = piece_limit(b), stride = limit < STRIDE ? STRIDE / limit : 1;
	struct piece p = {0};
	struct call call;
	bool under_way = false; /* call: the last piece of the previous stride */
	CUresult r = CUDA_SUCCESS;
	for (uint64_t n = 1; r == CUDA_SUCCESS && next_piece(b, limit, &p); n++) {
		if (!wait || (n % stride != 0 && !is_last(b, &p))) {
			r = upload_piece(ref, b, &p, NULL);
			continue;
		}
		if (under_way)
			r = call_finish(&call, NULL, 0, NULL);
		under_way = false;
		if (r == CUDA_SUCCESS) {
			call = (struct call){0};
			r = upload_piece(ref, b, &p, &call);
			under_way = r == CUDA_SUCCESS;
		}
	}
	if (!under_way)
		return r;
	CUresult late = call_finish(&call, NULL, 0, NULL);
	return r != CUDA_SUCCESS ? r : late;
}

static CUresult download_inline(const struct stream_ref *ref, const struct box *b)
{
	struct transfer t = {.src = b->src, .width = b->width, .height = 1, .depth = 1, .inlineTarget = true};
	struct call call = {0};
	uint8_t bytes[INLINE_DOWN];
	uint32_t got = 0;
	t.dst.pitch = b->width;
	t.dst.height = 1;
	CUresult r = send_transfer(ref, &t, &call);
	if (r == CUDA_SUCCESS)
		r = call_finish(&call, bytes, (uint32_t)b->width, &got);
	if (r != CUDA_SUCCESS)
		return r;
	if (got != b->width)
		return CUDA_ERROR_UNKNOWN;
	memcpy((void *)(uintptr_t)b->dst.address, bytes, b->width);
	return CUDA_SUCCESS;
}

/* A piece of a copy to the host. */
struct descent {
	struct staging staging;
	struct call call;
	struct piece piece;
};

/* Pieces of a copy to the host in flight, in order; enough to keep the worker busy while the guest empties one. */
struct flight_down {
	struct descent piece[3];
	uint32_t first, count; /* those in flight; indices are modulo the array's size */
};

static struct descent *nth(struct flight_down *f, uint32_t n)
{
	return &f->piece[(f->first + n) % (sizeof f->piece / sizeof *f->piece)];
}

static CUresult land_first(const struct box *b, struct flight_down *f)
{
	struct descent *d = nth(f, 0);
	CUresult r = call_finish(&d->call, NULL, 0, NULL);
	if (r == CUDA_SUCCESS)
		copy_rows(host_at(&b->dst, &d->piece), b->dst.pitch, arena_at(d->staging.offset), d->piece.width, &d->piece);
	staging_give(&d->staging);
	f->first++;
	f->count--;
	return r;
}

static CUresult land_all(const struct box *b, struct flight_down *f)
{
	CUresult worst = CUDA_SUCCESS;
	while (f->count > 0) {
		CUresult r = land_first(b, f);
		if (worst == CUDA_SUCCESS)
			worst = r;
	}
	return worst;
}

/*
 * A thread must not wait for a block or a reply slot while it holds others, or threads could deadlock: it first
 * completes the pieces in flight.
 */
static CUresult block_for(const struct box *b, uint64_t bytes, struct staging *s, struct flight_down *f)
{
	if (staging_try(bytes, s))
		return CUDA_SUCCESS;
	CUresult r = land_all(b, f);
	return r == CUDA_SUCCESS ? staging_take(bytes, s) : r;
}

static CUresult descend(const struct stream_ref *ref, const struct box *b, const struct piece *p, struct flight_down *f)
{
	struct descent d = {.piece = *p};
	CUresult r = block_for(b, p->width * p->height, &d.staging, f);
	if (r != CUDA_SUCCESS)
		return r;
	struct transfer t = staged(b, p, &d.staging, false);
	d.call.holding = f->count > 0;
	r = send_transfer(ref, &t, &d.call);
	if (r == CUDA_ERROR_NOT_READY && d.call.holding) {
		d.call.holding = false;
		r = land_all(b, f);
		if (r == CUDA_SUCCESS)
			r = send_transfer(ref, &t, &d.call);
	}
	if (r != CUDA_SUCCESS) {
		staging_give(&d.staging);
		return r;
	}
	*nth(f, f->count++) = d;
	return CUDA_SUCCESS;
}

static CUresult download(const struct stream_ref *ref, const struct box *b)
{
	if (is_little(b, INLINE_DOWN) && b->height == 1)
		return download_inline(ref, b);
	uint64_t limit = piece_limit(b);
	struct flight_down f = {.count = 0};
	struct piece p = {0};
	CUresult r = CUDA_SUCCESS;
	while (r == CUDA_SUCCESS && next_piece(b, limit, &p)) {
		if (f.count == sizeof f.piece / sizeof *f.piece)
			r = land_first(b, &f);
		if (r == CUDA_SUCCESS)
			r = descend(ref, b, &p, &f);
	}
	CUresult late = land_all(b, &f);
	return r != CUDA_SUCCESS ? r : late;
}

void box_move(const struct box *b)
{
	for (uint64_t z = 0; z < b->depth; z++)
		for (uint64_t y = 0; y < b->height; y++) {
			struct piece row = {.y = y, .z = z, .width = b->width, .height = 1};
			memmove(host_at(&b->dst, &row), host_at(&b->src, &row), b->width);
		}
}

static CUresult within_host(const struct stream_ref *ref, const struct box *b)
{
	CUresult r = stream_wait(ref);
	if (r == CUDA_SUCCESS)
		box_move(b);
	return r;
}

void box_gather(const struct box *b, uint8_t *packed)
{
	for (uint64_t z = 0; z < b->depth; z++) {
		struct piece slice = {.z = z, .width = b->width, .height = b->height};
		copy_rows(packed + z * b->height * b->width, b->width, host_at(&b->src, &slice), b->src.pitch, &slice);
	}
}

void box_scatter(const struct box *b, const uint8_t *packed)
{
	for (uint64_t z = 0; z < b->depth; z++) {
		struct piece slice = {.z = z, .width = b->width, .height = b->height};
		copy_rows(host_at(&b->dst, &slice), b->dst.pitch, packed + z * b->height * b->width, b->width, &slice);
	}
}

struct copy_args box_staged(const struct box *b, uint64_t offset)
{
	struct copy_endpoint block = {.where = AT_ARENA, .address = offset, .pitch = b->width, .height = b->height};
	struct transfer t = {
		.dst = b->dst.where == AT_HOST ? block : b->dst, .src = b->src.where == AT_HOST ? block : b->src,
		.width = b->width, .height = b->height, .depth = b->depth,
	};
	return args_of(&t, kind_of(&t.dst, false), kind_of(&t.src, false));
}

/* Rows without gaps on both sides are one long row. */
static void flatten(struct box *b)
{
	if (b->dst.where == AT_ARRAY || b->src.where == AT_ARRAY)
		return;
	if (b->height > 1 && (b->dst.pitch != b->width || b->src.pitch != b->width))
		return;
	if (b->depth > 1 && (b->dst.pitch != b->width || b->src.pitch != b->width || b->dst.height != b->height ||
		b->src.height != b->height))
		return;
	b->width *= b->height * b->depth;
	b->height = b->depth = 1;
	b->dst.pitch = b->src.pitch = b->width;
	b->dst.height = b->src.height = 1;
}

static CUresult copy(const struct stream_ref *ref, const struct box *box, bool wait)
{
	if (box->width == 0 || box->height == 0 || box->depth == 0)
		return CUDA_SUCCESS;
	struct box b = *box;
	flatten(&b);
	bool up = b.src.where == AT_HOST, down = b.dst.where == AT_HOST;
	if (up && down)
		return within_host(ref, &b);
	if (up)
		return upload(ref, &b, wait);
	if (down)
		return download(ref, &b);
	struct transfer t = {.dst = b.dst, .src = b.src, .width = b.width, .height = b.height, .depth = b.depth};
	return send_and_maybe_wait(ref, &t, wait);
}

CUresult copy_box(const struct stream_ref *ref, const struct box *box, bool wait)
{
	CUresult r = copy(ref, box, wait);
	return wait ? text_shown(ref->context, r) : r;
}
