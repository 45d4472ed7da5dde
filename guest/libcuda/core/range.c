/*
 * A treap keyed by base address; ranges never overlap. One lock: lookups are short and rare compared with the
 * operations that they precede.
 */
#include "core/range.h"

#include <pthread.h>
#include <stdlib.h>

struct node {
	struct range range;
	uint32_t priority;
	struct node *left, *right;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *root;
static uint64_t serials;
static uint32_t seed = 2463534242u; /* state of a xorshift generator, sufficient for priorities */

static uint32_t next_priority(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

/* Splits a treap into bases below at and the rest. */
static void split(struct node *n, uint64_t at, struct node **below, struct node **above)
{
	while (n) {
		if (n->range.base < at) {
			*below = n;
			below = &n->right;
			n = n->right;
		} else {
			*above = n;
			above = &n->left;
			n = n->left;
		}
	}
	*below = *above = NULL;
}

static struct node *join(struct node *below, struct node *above)
{
	struct node *top = NULL, **at = &top;
	while (below && above) {
		if (below->priority > above->priority) {
			*at = below;
			at = &below->right;
			below = below->right;
		} else {
			*at = above;
			at = &above->left;
			above = above->left;
		}
	}
	*at = below ? below : above;
	return top;
}

/* Returns the last node with a base at or below address. */
static struct node *floor_of(uint64_t address)
{
	struct node *best = NULL;
	for (struct node *n = root; n;) {
		if (n->range.base <= address) {
			best = n;
			n = n->right;
		} else {
			n = n->left;
		}
	}
	return best;
}

/* Returns the last node that overlaps r. */
static struct node *overlapping(const struct range *r)
{
	struct node *n = floor_of(r->base + r->size - 1);
	return n && n->range.base + n->range.size > r->base ? n : NULL;
}

static void unlink_node(struct node *gone)
{
	struct node **at = &root;
	while (*at != gone)
		at = gone->range.base < (*at)->range.base ? &(*at)->left : &(*at)->right;
	*at = join(gone->left, gone->right);
}

static void drop_stale(const struct range *r)
{
	struct node *n;
	while ((n = overlapping(r)) && range_on_device(&n->range)) {
		unlink_node(n);
		free(n);
	}
}

static bool add(const struct range *r, bool replace)
{
	if (r->size == 0 || r->base + r->size < r->base)
		return false;
	struct node *n = malloc(sizeof *n);
	if (!n)
		return false;
	*n = (struct node){.range = *r};
	pthread_mutex_lock(&lock);
	if (replace)
		drop_stale(r);
	bool fits = !overlapping(r);
	if (fits) {
		struct node *below, *above;
		n->priority = next_priority();
		n->range.serial = ++serials;
		split(root, r->base, &below, &above);
		root = join(join(below, n), above);
	}
	pthread_mutex_unlock(&lock);
	if (!fits)
		free(n);
	return fits;
}

bool range_add(const struct range *r) { return add(r, false); }
bool range_add_fresh(const struct range *r) { return add(r, true); }

bool range_find(uint64_t address, struct range *found)
{
	pthread_mutex_lock(&lock);
	struct node *n = floor_of(address);
	bool inside = n && address - n->range.base < n->range.size;
	if (inside)
		*found = n->range;
	pthread_mutex_unlock(&lock);
	return inside;
}

bool range_set_sync(uint64_t address, bool sync)
{
	pthread_mutex_lock(&lock);
	struct node *n = floor_of(address);
	bool inside = n && address - n->range.base < n->range.size;
	if (inside)
		n->range.sync = sync;
	pthread_mutex_unlock(&lock);
	return inside;
}

/* Returns the range of a kind that begins at base, or NULL. Requires the lock. */
static struct range *range_at(uint64_t base, enum range_kind kind)
{
	struct node *n = floor_of(base);
	return n && n->range.base == base && n->range.kind == kind ? &n->range : NULL;
}

bool range_set_owner(uint64_t base, enum range_kind kind, uint64_t owner)
{
	pthread_mutex_lock(&lock);
	struct range *r = range_at(base, kind);
	if (r)
		r->owner = owner;
	pthread_mutex_unlock(&lock);
	return r != NULL;
}

bool range_set_flags(uint64_t base, enum range_kind kind, uint32_t flags)
{
	pthread_mutex_lock(&lock);
	struct range *r = range_at(base, kind);
	if (r)
		r->flags = flags;
	pthread_mutex_unlock(&lock);
	return r != NULL;
}

bool range_remove(uint64_t base, enum range_kind kind, struct range *removed)
{
	pthread_mutex_lock(&lock);
	struct node *n = floor_of(base);
	if (n && (n->range.base != base || n->range.kind != kind))
		n = NULL;
	if (n) {
		unlink_node(n);
		*removed = n->range;
	}
	pthread_mutex_unlock(&lock);
	free(n);
	return n != NULL;
}

static struct node *search(struct node *n, bool (*wanted)(const struct range *, uint64_t), uint64_t what)
{
	if (!n || wanted(&n->range, what))
		return n;
	struct node *found = search(n->left, wanted, what);
	return found ? found : search(n->right, wanted, what);
}

static bool remove_one(bool (*wanted)(const struct range *, uint64_t), uint64_t what, struct range *removed)
{
	pthread_mutex_lock(&lock);
	struct node *n = search(root, wanted, what);
	if (n) {
		unlink_node(n);
		*removed = n->range;
	}
	pthread_mutex_unlock(&lock);
	free(n);
	return n != NULL;
}

static bool outside_arena(const struct range *r, uint64_t context) { return r->context == context && !range_in_arena(r); }
static bool inside_arena(const struct range *r, uint64_t context) { return r->context == context && range_in_arena(r); }
static bool of_owner(const struct range *r, uint64_t owner) { return r->kind == RANGE_GLOBAL && r->owner == owner; }

bool range_remove_context(uint64_t context, bool arena, struct range *removed)
{
	return remove_one(arena ? inside_arena : outside_arena, context, removed);
}

void range_remove_owner(uint64_t owner)
{
	struct range gone;
	while (remove_one(of_owner, owner, &gone))
		;
}
