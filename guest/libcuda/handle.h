/*
 * Handles are numbers: kind, generation and index of a slot in a table, never
 * addresses. A handle that is stale, of another kind, or plain nonsense is not
 * found; nothing is ever dereferenced on a program's word.
 *
 * Objects lie in the table's own memory, which is never given back, so a lookup
 * takes no lock.
 */
#ifndef PEGASUS_HANDLE_H
#define PEGASUS_HANDLE_H

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
	HANDLE_TAIL,
	HANDLE_POOL,
	HANDLE_MEMORY,
	HANDLE_GRAPH,
	HANDLE_GRAPH_NODE,
	HANDLE_GRAPH_EXEC,
	HANDLE_USER_OBJECT,
	HANDLE_ERRAND,
};

enum {
	HANDLE_INDEX_BITS = 20,
	HANDLE_GENERATION_BITS = 20,
	HANDLE_CHUNK = 256,
	HANDLE_CHUNKS = 4096,
};

/* The head of every object in a table. */
struct object {
	_Atomic uint64_t handle; /* 0 unless the object is alive */
	uint64_t id;             /* the handle it has, or will have when published */
	uint32_t index, nextFree;
};

struct table {
	enum handle_kind kind;
	uint32_t objectBytes;
	uint32_t limit; /* objects at most, below 1 << HANDLE_INDEX_BITS */
	_Atomic(uint8_t *) chunks[HANDLE_CHUNKS];
	pthread_mutex_t lock; /* guards what follows; no other lock is taken under it */
	uint32_t used;        /* slots ever used; index 0 never is */
	uint32_t freeFirst, freeLast; /* oldest first, so that ids are not reused soon */
};

#define HANDLE_TABLE(k, type, most) \
	{.kind = (k), .objectBytes = sizeof(type), .limit = (most), .lock = PTHREAD_MUTEX_INITIALIZER}

/* A fresh object that nobody can find yet, or NULL when the table is full. All but the head is as its last user left it. */
void *handle_new(struct table *t);
/* Makes an object findable under its id. */
void handle_publish(void *object);
/* Makes an object unfindable; true for the one caller who did it. */
bool handle_retire(void *object);
/* Gives a retired (or never published) object back to its table. */
void handle_free(struct table *t, void *object);

static inline void *handle_at(struct table *t, uint32_t index)
{
	uint8_t *chunk = atomic_load_explicit(&t->chunks[index / HANDLE_CHUNK], memory_order_acquire);
	return chunk ? chunk + (uint64_t)(index % HANDLE_CHUNK) * t->objectBytes : NULL;
}

/* The living object of a handle, or NULL. */
static inline void *handle_find(struct table *t, uint64_t handle)
{
	if (handle >> (HANDLE_INDEX_BITS + HANDLE_GENERATION_BITS) != (uint64_t)t->kind)
		return NULL;
	struct object *o = handle_at(t, (uint32_t)handle & ((1u << HANDLE_INDEX_BITS) - 1));
	return o && atomic_load_explicit(&o->handle, memory_order_acquire) == handle ? o : NULL;
}

/* Calls visit for every object alive; for rare occasions. */
void handle_each(struct table *t, void (*visit)(void *object, void *argument), void *argument);

#endif
