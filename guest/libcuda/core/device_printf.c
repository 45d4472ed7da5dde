#include "core/device_printf.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "core/arena.h"
#include "core/ring.h"
#include "core/zz_wire.h"

#define ROOM 65536
#define PATIENCE_S 5
#define TEXT_AFTER_ALL 1
#define TEXT_STDERR 2

_Atomic uint32_t textUnderWay;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* output is printed in the order in which it is fetched */

/* Prints through the C library, so that the output keeps its order with the program's own output. */
static void print(const void *text, uint64_t bytes, uint32_t file)
{
	int saved = errno;
	fwrite(text, 1, bytes, file == TEXT_STDERR ? stderr : stdout);
	errno = saved;
}

/* A program that ends on the next error by abort or _exit flushes no buffer, but the output explains the error. */
static void flush(void)
{
	int saved = errno;
	fflush(stdout);
	errno = saved;
}

#define TEXT_PACKET(context_, args_) \
	{.op = OP_TEXT_READ, .context = (context_), .anyway = true, .fixed = &(args_), .fixedBytes = sizeof(args_)}

/* Prints the output present at the first fetch: a kernel may print for ever. Returns whether there was any. */
static bool fetch_into(const struct staging *block, uint32_t context)
{
	struct text_read_args args = {.arenaOffset = block->offset, .capacity = ROOM};
	struct packet p = TEXT_PACKET(context, args);
	struct text_read_result got;
	uint64_t printed = 0, there = 0;
	do {
		if (ring_call(&p, &got, sizeof got) != CUDA_SUCCESS || got.length == 0 || got.length > ROOM)
			break;
		print(arena_at(block->offset), got.length, got.file);
		if (printed == 0)
			there = got.length + got.left;
		printed += got.length;
	} while (got.left > 0 && printed < there);
	return printed > 0;
}

/*
 * Locks printing. A printing thread can block while the program's output is not being read, and the waiting thread may
 * be its reader, so the wait is bounded to PATIENCE_S, except for a context's last output.
 */
static bool take_turn(bool last)
{
	struct timespec until;
	if (last)
		return pthread_mutex_lock(&lock) == 0;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	return pthread_mutex_timedlock(&lock, &until) == 0;
}

/*
 * Without the lock, or a buffer to fetch it into, the output stays for the next time. Printing is a cancellation point,
 * so cancellation is disabled while the lock is held.
 */
static void fetch(uint32_t context, bool last)
{
	struct staging block;
	int cancelable;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	if (take_turn(last)) {
		atomic_store_explicit(&textUnderWay, context, memory_order_relaxed);
		if (arena_borrow(ROOM, &block) == CUDA_SUCCESS) {
			if (fetch_into(&block, context))
				flush();
			arena_return(&block);
		}
		atomic_store_explicit(&textUnderWay, 0, memory_order_release);
		pthread_mutex_unlock(&lock);
	}
	pthread_setcancelstate(cancelable, NULL);
}

void text_fetch(uint32_t context) { fetch(context, false); }

/* Waits without any lock: the context's work may depend on threads that have output to print. */
void text_show_last(uint32_t context)
{
	struct text_read_args args = {.flags = TEXT_AFTER_ALL};
	struct packet p = TEXT_PACKET(context, args);
	struct text_read_result got;
	ring_call(&p, &got, sizeof got);
	if (text_waits(context))
		fetch(context, true);
}
