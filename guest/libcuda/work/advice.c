#include "work/advice.h"

#include <stdlib.h>

#include "core/range.h"
#include "object/context.h"

#define PAGE UINT64_C(4096)

/* A range of pages with the same advice. Ranges are sorted and do not overlap; pages between them have no advice. */
struct pages {
	uint64_t begin, end, allocation; /* allocation: address of the allocation that contains the range */
	struct advice advice;
	struct pages *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct pages *list;

static bool same_location(CUmemLocation a, CUmemLocation b) { return a.type == b.type && a.id == b.id; }

static bool same(const struct advice *a, const struct advice *b)
{
	return a->readMostly == b->readMostly && a->accessedBy == b->accessedBy && same_location(a->preferred, b->preferred) &&
		same_location(a->prefetched, b->prefetched);
}

static bool insert(struct pages **at, uint64_t begin, uint64_t end, uint64_t allocation, const struct advice *advice)
{
	struct pages *p = malloc(sizeof *p);
	if (!p)
		return false;
	*p = (struct pages){.begin = begin, .end = end, .allocation = allocation, .advice = *advice, .next = *at};
	*at = p;
	return true;
}

/* Splits the range that contains an address at that address. */
static bool cut(uint64_t where)
{
	for (struct pages *p = list; p && p->begin < where; p = p->next)
		if (where < p->end) {
			if (!insert(&p->next, where, p->end, p->allocation, &p->advice))
				return false;
			p->end = where;
		}
	return true;
}

/* Makes the list contain exactly the pages of a part, in ranges that lie within it. */
static bool cover(const struct advice_part *part)
{
	static const struct advice none;
	if (!cut(part->begin) || !cut(part->end))
		return false;
	struct pages **at = &list;
	while (*at && (*at)->end <= part->begin)
		at = &(*at)->next;
	for (uint64_t begin = part->begin; begin < part->end; begin = (*at)->end, at = &(*at)->next) {
		uint64_t until = *at && (*at)->begin < part->end ? (*at)->begin : part->end;
		if (begin < until && !insert(at, begin, until, part->allocation, &none))
			return false;
	}
	return true;
}

/* Merges adjacent ranges with the same advice, and removes ranges without advice. */
static void tidy(void)
{
	static const struct advice none;
	for (struct pages **at = &list; *at;) {
		struct pages *p = *at, *next = p->next;
		bool join = next && next->begin == p->end && next->allocation == p->allocation && same(&p->advice, &next->advice);
		if (join)
			next->begin = p->begin;
		if (join || same(&p->advice, &none)) {
			*at = next;
			free(p);
			continue;
		}
		at = &p->next;
	}
}

CUresult advice_part(CUdeviceptr address, size_t bytes, struct advice_part *part)
{
	struct range range;
	struct context *c;
	if (bytes == 0 || !range_find(address, &range) || range.kind != RANGE_MANAGED || range.size - (address - range.base) < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*part = (struct advice_part){address & ~(PAGE - 1), (address + bytes + PAGE - 1) & ~(PAGE - 1), range.base};
	return context_of((CUcontext)(uintptr_t)range.context, &c);
}

CUresult advice_change(const struct advice_part *part, void (*how)(struct advice *, CUmemLocation), CUmemLocation where)
{
	pthread_mutex_lock(&lock);
	bool covered = cover(part);
	for (struct pages *p = list; covered && p; p = p->next)
		if (p->begin >= part->begin && p->end <= part->end)
			how(&p->advice, where);
	tidy();
	pthread_mutex_unlock(&lock);
	return covered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void advice_forget(uint64_t allocation)
{
	pthread_mutex_lock(&lock);
	for (struct pages **at = &list; *at;) {
		struct pages *p = *at;
		if (p->allocation != allocation) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
	}
	pthread_mutex_unlock(&lock);
}

struct advice advice_common(const struct advice_part *part)
{
	struct advice all = {0};
	uint64_t at = part->begin;
	pthread_mutex_lock(&lock);
	for (const struct pages *p = list; p && at < part->end && p->begin <= at; p = p->next) {
		if (p->end <= at)
			continue;
		if (at == part->begin)
			all = p->advice;
		all.readMostly &= p->advice.readMostly;
		all.accessedBy &= p->advice.accessedBy;
		if (!same_location(all.preferred, p->advice.preferred))
			all.preferred = (CUmemLocation){0};
		if (!same_location(all.prefetched, p->advice.prefetched))
			all.prefetched = (CUmemLocation){0};
		at = p->end;
	}
	pthread_mutex_unlock(&lock);
	return at < part->end ? (struct advice){0} : all;
}
