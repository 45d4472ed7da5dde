/*
 * Handles are numbers, never addresses: kind, generation and index of a slot in a table. Lookup fails for a stale
 * handle, a handle of another kind and any other number; the library never dereferences a handle.
 *
 * Objects lie in the table's own memory, which is never freed, so a lookup takes no lock.
 */
#ifndef PEGASUS_CORE_HANDLE_H
#define PEGASUS_CORE_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum handle_kind {
	HANDLE_CONTEXT = 0x11,
	HANDLE_MODULE,
	HANDLE_FUNCTION,
	HANDLE_STREAM,
	HANDLE_EVENT,
	HANDLE_ARRAY,
	HANDLE_TEXTURE,
	HANDLE_LIBRARY,
	HANDLE_CALLBACK,
	HANDLE_LINK,
	HANDLE_SURFACE,
	HANDLE_REFERENCE,
	HANDLE_KERNEL,
	HANDLE_MIPMAP,
	HANDLE_TIMELINE,
	HANDLE_POOL,
	HANDLE_MEMORY,
	HANDLE_GRAPH,
	HANDLE_GRAPH_NODE,
	HANDLE_GRAPH_EXEC,
	HANDLE_USER_OBJECT,
	HANDLE_HOST_COPY,
};

enum {
	HANDLE_INDEX_BITS = 20,
	HANDLE_GENERATION_BITS = 20,
	HANDLE_CHUNK = 256,
	HANDLE_CHUNKS = 4096,
};

/* Header of every object in a table. */
struct object {
	_Atomic uint64_t handle; /* 0 unless the object is published */
	uint64_t id;             /* its handle, valid once it is published */
	uint32_t index, nextFree;
};

struct table {
	enum handle_kind kind;
	uint32_t objectBytes;
	uint32_t limit; /* largest number of objects, below 1 << HANDLE_INDEX_BITS */
	_Atomic(uint8_t *) chunks[HANDLE_CHUNKS];
	pthread_mutex_t lock; /* guards the fields below; innermost lock */
	uint32_t used;        /* number of slots ever used; index 0 is never used */
	uint32_t freeFirst, freeLast; /* FIFO free list, so that ids are reused as late as possible */
};

#define HANDLE_TABLE(k, type, most) \
	{.kind = (k), .objectBytes = sizeof(type), .limit = (most), .lock = PTHREAD_MUTEX_INITIALIZER}

/*
 * Returns an unpublished object, or NULL when the table is full. Except for the header it contains the data of the
 * slot's previous object.
 */
void *handle_new(struct table *t);
/* Makes lookups find the object by its id. */
void handle_publish(void *object);
/* Makes lookups miss the object; true for exactly one of several concurrent callers. */
bool handle_retire(void *object);
/* Returns a retired (or never published) object to its table. */
void handle_free(struct table *t, void *object);

static inline void *handle_at(struct table *t, uint32_t index)
{
	uint8_t *chunk = atomic_load_explicit(&t->chunks[index / HANDLE_CHUNK], memory_order_acquire);
	return chunk ? chunk + (uint64_t)(index % HANDLE_CHUNK) * t->objectBytes : NULL;
}

/* Returns the published object with the handle, or NULL. */
static inline void *handle_find(struct table *t, uint64_t handle)
{
	if (handle >> (HANDLE_INDEX_BITS + HANDLE_GENERATION_BITS) != (uint64_t)t->kind)
		return NULL;
	struct object *o = handle_at(t, (uint32_t)handle & ((1u << HANDLE_INDEX_BITS) - 1));
	return o && atomic_load_explicit(&o->handle, memory_order_acquire) == handle ? o : NULL;
}

/* Calls visit for every published object; walks the whole table. */
void handle_each(struct table *t, void (*visit)(void *object, void *argument), void *argument);

#endif
