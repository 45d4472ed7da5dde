/*
 * Context-local storage: values that a library keeps per context, by a key of its own. The runtime reads its value at
 * nearly every call, so each thread caches its last lookup until any value changes.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "object/context.h"
#include "api/export.h"
#include "tables.h"

enum { BUCKETS = 64 };

struct item {
	uint64_t context;
	void *key, *value;
	storage_ends ends;
	struct item *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below; innermost lock */
static struct item *buckets[BUCKETS];
static _Atomic uint64_t changes; /* number of changes, from 1 on once there is a value */

static _Thread_local struct {
	uint64_t context, changes;
	void *key, *value;
} last;

static CUresult name_context(CUcontext given, uint64_t *context)
{
	*context = (uint64_t)(uintptr_t)given;
	if (*context == 0 || *context == UINT64_MAX)
		*context = context_top();
	return handle_find(&contexts, *context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Returns the link to the item, or the place for it. Requires the lock. */
static struct item **ref(uint64_t context, void *key)
{
	uint64_t h = (context ^ (uint64_t)(uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15);
	struct item **at = &buckets[h >> 58];
	while (*at && ((*at)->context != context || (*at)->key != key))
		at = &(*at)->next;
	return at;
}

/* Unlinks an item. Requires the lock. */
static struct item *take(struct item **at)
{
	struct item *i = *at;
	*at = i->next;
	atomic_fetch_add(&changes, 1);
	return i;
}

CUresult storage_put(CUcontext given, void *key, void *value, storage_ends ends)
{
	uint64_t context;
	CUresult r = name_context(given, &context);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	struct item **at = ref(context, key);
	if (!*at && (*at = malloc(sizeof **at)))
		(*at)->next = NULL;
	if (*at) {
		(*at)->context = context;
		(*at)->key = key;
		(*at)->value = value;
		(*at)->ends = ends;
		atomic_fetch_add(&changes, 1);
	}
	r = *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&lock);
	return r;
}

/* The caller handles the value itself: its destructor is not called. */
CUresult storage_delete(CUcontext given, void *key)
{
	uint64_t context;
	CUresult r = name_context(given, &context);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	struct item **at = ref(context, key), *i = *at ? take(at) : NULL;
	pthread_mutex_unlock(&lock);
	free(i);
	return i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult storage_get(void **value, CUcontext given, void *key)
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t context, now = atomic_load(&changes);
	CUresult r = name_context(given, &context);
	if (r != CUDA_SUCCESS)
		return r;
	if (last.changes == now && last.context == context && last.key == key && now != 0) {
		*value = last.value;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	struct item *i = *ref(context, key);
	if (i) {
		*value = last.value = i->value;
		last.context = context;
		last.key = key;
		last.changes = atomic_load(&changes);
	}
	pthread_mutex_unlock(&lock);
	return i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* --- the end of a context --- */

static struct item *take_any(uint64_t context)
{
	struct item *taken = NULL;
	pthread_mutex_lock(&lock);
	for (int b = 0; b < BUCKETS && !taken; b++)
		for (struct item **at = &buckets[b]; *at; at = &(*at)->next)
			if ((*at)->context == context) {
				taken = take(at);
				break;
			}
	pthread_mutex_unlock(&lock);
	return taken;
}

/* A destructor may store new values. Their destructors run, too, up to a limit. */
void export_context_ends(CUcontext context)
{
	struct item *i;
	for (int tries = 0; tries < 1000 && (i = take_any((uint64_t)(uintptr_t)context)); tries++) {
		if (i->ends)
			i->ends(context, i->key, i->value);
		free(i);
	}
}

void export_context_ended(CUcontext context)
{
	struct item *i;
	while ((i = take_any((uint64_t)(uintptr_t)context)))
		free(i);
}
