#include "core/handle.h"

#include <stdlib.h>

static struct object *object_at(struct table *t, uint32_t index) { return handle_at(t, index); }

static struct object *grow(struct table *t)
{
	uint32_t index = t->used + 1;
	if (index > t->limit)
		return NULL;
	_Atomic(uint8_t *) *chunk = &t->chunks[index / HANDLE_CHUNK];
	if (!atomic_load_explicit(chunk, memory_order_relaxed)) {
		uint8_t *fresh = calloc(HANDLE_CHUNK, t->objectBytes);
		if (!fresh)
			return NULL;
		atomic_store_explicit(chunk, fresh, memory_order_release);
	}
	t->used = index;
	struct object *o = object_at(t, index);
	o->index = index;
	return o;
}

static struct object *take_free(struct table *t)
{
	if (t->freeFirst == 0)
		return NULL;
	struct object *o = object_at(t, t->freeFirst);
	t->freeFirst = o->nextFree;
	if (t->freeFirst == 0)
		t->freeLast = 0;
	return o;
}

static uint64_t next_id(const struct table *t, const struct object *o)
{
	uint64_t generation = (o->id >> HANDLE_INDEX_BITS) + 1;
	generation &= (1u << HANDLE_GENERATION_BITS) - 1;
	return (uint64_t)t->kind << (HANDLE_INDEX_BITS + HANDLE_GENERATION_BITS) | generation << HANDLE_INDEX_BITS | o->index;
}

void *handle_new(struct table *t)
{
	pthread_mutex_lock(&t->lock);
	/* Prefers fresh slots while there are any: work that names an old id may still be in flight. */
	bool rest = t->used < HANDLE_CHUNK / 2;
	struct object *o = rest ? grow(t) : take_free(t);
	if (!o)
		o = rest ? take_free(t) : grow(t);
	if (o)
		o->id = next_id(t, o);
	pthread_mutex_unlock(&t->lock);
	return o;
}

void handle_publish(void *object)
{
	struct object *o = object;
	atomic_store_explicit(&o->handle, o->id, memory_order_release);
}

bool handle_retire(void *object)
{
	struct object *o = object;
	uint64_t id = o->id;
	return atomic_compare_exchange_strong_explicit(&o->handle, &id, 0, memory_order_acq_rel, memory_order_relaxed);
}

void handle_free(struct table *t, void *object)
{
	struct object *o = object;
	pthread_mutex_lock(&t->lock);
	o->nextFree = 0;
	if (t->freeLast)
		object_at(t, t->freeLast)->nextFree = o->index;
	else
		t->freeFirst = o->index;
	t->freeLast = o->index;
	pthread_mutex_unlock(&t->lock);
}

void handle_each(struct table *t, void (*visit)(void *object, void *argument), void *argument)
{
	pthread_mutex_lock(&t->lock);
	uint32_t used = t->used;
	pthread_mutex_unlock(&t->lock);
	for (uint32_t i = 1; i <= used; i++) {
		struct object *o = object_at(t, i);
		if (atomic_load_explicit(&o->handle, memory_order_acquire) != 0)
			visit(o, argument);
	}
}
