/*
 * Which addresses belong to what: device allocations, pinned and managed
 * memory, module variables, registered host memory. Answers pointer attributes,
 * base addresses and whether a copy stays within one allocation.
 */
#ifndef PEGASUS_RANGE_H
#define PEGASUS_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum range_kind {
	RANGE_DEVICE, RANGE_PINNED, RANGE_MANAGED, RANGE_GLOBAL, RANGE_REGISTERED,
	RANGE_MAPPED, /* addresses of registered memory for devices: see hostmap.h */
	RANGE_SEGMENT, RANGE_POOL, RANGE_RESERVED, RANGE_BORROWED,
	RANGE_IMPORTED, /* of another process's pool: see poolshare.h */
};

struct range {
	uint64_t base, size;
	enum range_kind kind;
	uint64_t context; /* handle of the context it belongs to */
	uint32_t flags;   /* as given at allocation; of imported memory how often it was imported once more */
	uint64_t serial;  /* unique among all ranges ever */
	uint64_t owner;   /* module handle for globals, block or handle for memory of a pool; of registered memory its device address, and the reverse */
	bool sync;        /* synchronous copies and fills of it wait until they are complete */
};

/* Pinned and managed memory lie in the arena, and so does registered memory that devices reach. */
static inline bool range_in_arena(const struct range *r)
{
	return r->kind == RANGE_PINNED || r->kind == RANGE_MANAGED || r->kind == RANGE_MAPPED;
}

/* Memory of the device's own, which it has given an address, or addresses where there may be some: see vmm.h. */
static inline bool range_on_device(const struct range *r)
{
	return r->kind == RANGE_DEVICE || r->kind == RANGE_GLOBAL || r->kind >= RANGE_SEGMENT;
}

/* Adds a range, unless it overlaps another one or memory has run out. */
bool range_add(const struct range *r);
/*
 * Adds device memory that the host has just given out: what the table still says of device memory there
 * is stale. (The host may use an address again before the thread that let go of it has told the table.)
 */
bool range_add_fresh(const struct range *r);
/* The range that address lies in. */
bool range_find(uint64_t address, struct range *found);
/* Changes sync of the range that address lies in. */
bool range_set_sync(uint64_t address, bool sync);
/* Changes the owner of the range of that kind that begins at base. */
bool range_set_owner(uint64_t base, enum range_kind kind, uint64_t owner);
/* Changes the flags of the range of that kind that begins at base. */
bool range_set_flags(uint64_t base, enum range_kind kind, uint32_t flags);
/* Removes the range that begins at base if it is of that kind. */
bool range_remove(uint64_t base, enum range_kind kind, struct range *removed);
/*
 * Removes one range of a context, if there is one: called until it says false.
 * arena: only what lies there, else only the rest.
 */
bool range_remove_context(uint64_t context, bool arena, struct range *removed);
/* Forgets the variables of a module. */
void range_remove_owner(uint64_t owner);

#endif
