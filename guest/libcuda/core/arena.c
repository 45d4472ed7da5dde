#include "core/arena.h"

#include <stdlib.h>

#include "core/futex.h"

#define PAGE 4096u
#define STAGING_MOST (UINT64_C(64) << 20)
#define STAGING_PIECE (UINT64_C(256) << 10)
#define STAGING_WHOLE (UINT64_C(512) << 10)

/* A free piece of the arena; the list is in order of address, and neighbours are merged. */
struct extent {
	uint64_t offset, bytes;
	struct extent *next;
};

struct flight {
	struct staging staging;
	struct flight *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct extent *holes;        /* for pinned memory and images */
static struct extent *stagingHoles; /* a separate part, so that pinned memory cannot block copies */
static struct flight *flights, **lastFlight = &flights; /* passed to the host, oldest first */
static uint32_t *freeReleases; /* a stack of release words */
static uint32_t freeReleaseCount;

static uint64_t round_up(uint64_t bytes) { return (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1); }

static uint64_t staging_budget(void)
{
	uint64_t quarter = process.arenaBytes / 4;
	return quarter < STAGING_MOST ? quarter & ~(uint64_t)(PAGE - 1) : STAGING_MOST;
}

/*
 * Small enough that a block is still in the caches when the worker reads it, large enough that the cost per block is
 * negligible; where the worker has no processor of its own, that cost is mostly a context switch.
 */
uint64_t staging_limit(bool beside)
{
	uint64_t part = (staging_budget() / 16) & ~(uint64_t)(PAGE - 1), most = beside ? STAGING_PIECE : STAGING_WHOLE;
	return part < most ? part : most;
}

static void forget_list(struct extent **list)
{
	while (*list) {
		struct extent *e = *list;
		*list = e->next;
		free(e);
	}
}

static void forget_everything(void)
{
	forget_list(&holes);
	forget_list(&stagingHoles);
	while (flights) {
		struct flight *f = flights;
		flights = f->next;
		free(f);
	}
	lastFlight = &flights;
	free(freeReleases);
	freeReleases = NULL;
	freeReleaseCount = 0;
}

CUresult arena_reset(void)
{
	pthread_mutex_lock(&lock);
	forget_everything();
	holes = calloc(1, sizeof *holes);
	stagingHoles = calloc(1, sizeof *stagingHoles);
	freeReleases = calloc(process.releaseWords, sizeof *freeReleases);
	CUresult r = holes && stagingHoles && freeReleases ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		stagingHoles->bytes = staging_budget();
		holes->offset = stagingHoles->bytes;
		holes->bytes = (process.arenaBytes & ~(uint64_t)(PAGE - 1)) - holes->offset;
		for (uint32_t i = process.releaseWords; i > 0; i--)
			freeReleases[freeReleaseCount++] = i;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* First fit: low addresses are used again soon, while they are warm. */
static bool take_locked(struct extent **list, uint64_t bytes, uint64_t *offset)
{
	for (struct extent **at = list; *at; at = &(*at)->next) {
		struct extent *e = *at;
		if (e->bytes < bytes)
			continue;
		*offset = e->offset;
		e->offset += bytes;
		e->bytes -= bytes;
		if (e->bytes == 0) {
			*at = e->next;
			free(e);
		}
		return true;
	}
	return false;
}

static void give_locked(struct extent **list, uint64_t offset, uint64_t bytes)
{
	struct extent *before = NULL, *after = *list;
	while (after && after->offset < offset) {
		before = after;
		after = after->next;
	}
	if (before && before->offset + before->bytes == offset) {
		before->bytes += bytes;
	} else {
		struct extent *e = malloc(sizeof *e);
		if (!e)
			return; /* that part of the arena leaks, which is better than a failed free */
		*e = (struct extent){.offset = offset, .bytes = bytes, .next = after};
		if (before)
			before->next = e;
		else
			*list = e;
		before = e;
	}
	if (after && before->offset + before->bytes == after->offset) {
		before->bytes += after->bytes;
		before->next = after->next;
		free(after);
	}
}

static void drop_locked(const struct staging *s)
{
	give_locked(&stagingHoles, s->offset, s->bytes);
	freeReleases[freeReleaseCount++] = s->release;
}

static bool released(const struct flight *f)
{
	return atomic_load_explicit(&process.releases[f->staging.release - 1], memory_order_acquire) != 0;
}

/* Frees the blocks that the host has read, in order up to the first unread one; all: checks all blocks in flight. */
static void reap_locked(bool all)
{
	struct flight **at = &flights;
	while (*at) {
		struct flight *f = *at;
		if (!released(f)) {
			if (!all)
				break;
			at = &f->next;
			continue;
		}
		*at = f->next;
		drop_locked(&f->staging);
		free(f);
	}
	if (all || !flights)
		lastFlight = at;
}

CUresult arena_take(uint64_t bytes, uint64_t *offset)
{
	if (bytes == 0 || bytes > process.arenaBytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	bool ok = take_locked(&holes, round_up(bytes), offset);
	pthread_mutex_unlock(&lock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void arena_give(uint64_t offset, uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	give_locked(&holes, offset, round_up(bytes));
	pthread_mutex_unlock(&lock);
}

static bool try_locked(uint64_t bytes, struct staging *s)
{
	if (freeReleaseCount == 0 || !take_locked(&stagingHoles, bytes, &s->offset))
		return false;
	s->bytes = bytes;
	s->release = freeReleases[--freeReleaseCount];
	atomic_store_explicit(&process.releases[s->release - 1], 0, memory_order_relaxed);
	return true;
}

bool staging_try(uint64_t bytes, struct staging *s)
{
	uint64_t size = round_up(bytes);
	pthread_mutex_lock(&lock);
	reap_locked(false);
	bool ok = try_locked(size, s);
	if (!ok) {
		reap_locked(true);
		ok = try_locked(size, s);
	}
	pthread_mutex_unlock(&lock);
	return ok;
}

CUresult staging_take(uint64_t bytes, struct staging *s)
{
	struct timespec pause = {.tv_nsec = 20000};
	while (!staging_try(bytes, s)) {
		CUresult r = process_check_alive();
		if (r != CUDA_SUCCESS)
			return r;
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
	}
	return CUDA_SUCCESS;
}

void staging_pass(const struct staging *s)
{
	struct flight *f = malloc(sizeof *f);
	if (!f)
		return; /* leaks, as in give_locked */
	*f = (struct flight){.staging = *s};
	pthread_mutex_lock(&lock);
	*lastFlight = f;
	lastFlight = &f->next;
	pthread_mutex_unlock(&lock);
}

void staging_give(const struct staging *s)
{
	pthread_mutex_lock(&lock);
	drop_locked(s);
	pthread_mutex_unlock(&lock);
}

CUresult arena_borrow(uint64_t bytes, struct staging *s)
{
	*s = (struct staging){.bytes = bytes};
	CUresult r = arena_take(bytes, &s->offset);
	if (r == CUDA_SUCCESS || bytes > staging_budget())
		return r;
	return staging_take(bytes, s);
}

void arena_return(const struct staging *s)
{
	if (s->release == 0)
		arena_give(s->offset, s->bytes);
	else
		staging_give(s);
}
