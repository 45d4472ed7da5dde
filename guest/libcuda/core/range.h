/*
 * Table of address ranges: device allocations, pinned and managed memory, module variables, registered host memory.
 * Serves pointer attributes, base addresses and the check that a copy stays within one allocation.
 */
#ifndef PEGASUS_CORE_RANGE_H
#define PEGASUS_CORE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum range_kind {
	RANGE_DEVICE, RANGE_PINNED, RANGE_MANAGED, RANGE_GLOBAL, RANGE_REGISTERED,
	RANGE_MAPPED, /* device addresses of registered memory: see work/hostmap.h */
	RANGE_SEGMENT, RANGE_POOL, RANGE_RESERVED, RANGE_BORROWED,
	RANGE_IMPORTED, /* memory of another process's pool: see work/pool_share.h */
};

struct range {
	uint64_t base, size;
	enum range_kind kind;
	uint64_t context; /* handle of the context that it belongs to */
	uint32_t flags;   /* flags of the allocation; for imported memory the number of further imports */
	uint64_t serial;  /* unique among all ranges of the process */
	uint64_t owner;   /* variable: module handle; pool memory: block or handle; registered: its other (device or host) address */
	bool sync;        /* synchronous copies and fills of it return after they complete */
};

/* Reports whether the range lies in the arena: pinned and managed memory, and registered memory that devices access. */
static inline bool range_in_arena(const struct range *r)
{
	return r->kind == RANGE_PINNED || r->kind == RANGE_MANAGED || r->kind == RANGE_MAPPED;
}

/*
 * Reports whether the range has device addresses of the device's own: memory, or reserved addresses that memory may be
 * mapped at (work/vmm.h).
 */
static inline bool range_on_device(const struct range *r)
{
	return r->kind == RANGE_DEVICE || r->kind == RANGE_GLOBAL || r->kind >= RANGE_SEGMENT;
}

/* Adds a range; false if it overlaps another one or memory is exhausted. */
bool range_add(const struct range *r);
/*
 * Adds device memory that the host has just allocated and removes stale entries that overlap it. (The host may reuse an
 * address before the thread that freed it has updated the table.)
 */
bool range_add_fresh(const struct range *r);
/* Looks up the range that contains address. */
bool range_find(uint64_t address, struct range *found);
/* Sets the sync flag of the range that contains address. */
bool range_set_sync(uint64_t address, bool sync);
/* Sets the owner of the range of that kind that begins at base. */
bool range_set_owner(uint64_t base, enum range_kind kind, uint64_t owner);
/* Sets the flags of the range of that kind that begins at base. */
bool range_set_flags(uint64_t base, enum range_kind kind, uint32_t flags);
/* Removes the range that begins at base if it is of that kind. */
bool range_remove(uint64_t base, enum range_kind kind, struct range *removed);
/*
 * Removes one range of a context; called until it returns false. arena selects the ranges in the arena, else all
 * others.
 */
bool range_remove_context(uint64_t context, bool arena, struct range *removed);
/* Removes the variables of a module. */
void range_remove_owner(uint64_t owner);

#endif
