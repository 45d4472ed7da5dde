/*
 * The table of a pool's exported allocations. It is a file in memory: the process that owns the pool writes it, and the
 * processes that import the pool read it. An exported pointer is a copy of its entry, so a process that imports one
 * finds whether the bytes are whole, and whether the allocation still exists. Callers hold timelineLock.
 */
#ifndef PEGASUS_WORK_POOL_EXPORTS_H
#define PEGASUS_WORK_POOL_EXPORTS_H

#include <stdbool.h>
#include <stdint.h>

/* An exported allocation; also the contents of CUmemPoolPtrExportData. The entry of a freed one is 0. */
struct pool_export {
	uint64_t serial; /* never 0, never used again */
	uint64_t pool;   /* the pool's name */
	uint64_t tag, chunkOffset, chunkBytes; /* the chunk, as lent by the host */
	uint32_t segment;
	uint32_t number; /* of the entry, from 1 */
	uint64_t offset, bytes; /* within the chunk */
};

struct pool_exports;

/* Creates the table of a pool with that name; NULL without memory or file descriptors. */
struct pool_exports *exports_new(uint64_t name);
/* Opens the table of another process's pool and sets its name; NULL if the file is none. The caller may close the file. */
struct pool_exports *exports_open(int file, uint64_t *name);
/* Accepts NULL. */
void exports_free(struct pool_exports *t);
/* Returns a new descriptor of the table's file, -1 without one. */
int exports_file(const struct pool_exports *t);

/* The functions below, except exports_contains, require a table of exports_new. */

/* Enters an allocation and sets its serial and number; false if the table is full. */
bool exports_add(struct pool_exports *t, struct pool_export *e);
/* Removes the entry with a number. */
void exports_remove(struct pool_exports *t, uint32_t number);
/* Returns the entry with a number. */
struct pool_export exports_entry(const struct pool_exports *t, uint32_t number);

/* Reports whether the table of another process's pool has this entry. */
bool exports_contains(const struct pool_exports *t, const struct pool_export *e);

#endif
