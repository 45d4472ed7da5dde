#include "text.h"

#include <errno.h>
#include <stdio.h>

#include "arena.h"
#include "ring.h"
#include "zz_wire.h"

#define ROOM 65536
#define TEXT_AFTER_ALL 1
#define TEXT_STDERR 2

_Atomic uint32_t textUnderWay;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* what is fetched first is printed first */

/* By way of the C library, so that it keeps its place among what the program prints itself. */
static void print(const void *text, uint64_t bytes, uint32_t file)
{
	int saved = errno;
	fwrite(text, 1, bytes, file == TEXT_STDERR ? stderr : stdout);
	errno = saved;
}

/* Prints as much as there was at the first look: a kernel may go on printing for ever. */
static void fetch_into(const struct staging *block, uint32_t context, uint32_t flags)
{
	struct text_read_args args = {.arenaOffset = block->offset, .capacity = ROOM, .flags = flags};
	struct packet p = {.op = OP_TEXT_READ, .context = context, .anyway = true, .fixed = &args, .fixedBytes = sizeof args};
	struct text_read_result got;
	uint64_t printed = 0, there = 0;
	do {
		if (ring_call(&p, &got, sizeof got) != CUDA_SUCCESS || got.length == 0 || got.length > ROOM)
			return;
		print(arena_at(block->offset), got.length, got.file);
		if (printed == 0)
			there = got.length + got.left;
		printed += got.length;
	} while (got.left > 0 && printed < there);
}

/* Without a block to fetch it into, the text waits for the next time. */
static void fetch(uint32_t context, uint32_t flags)
{
	struct staging block;
	pthread_mutex_lock(&lock);
	atomic_store_explicit(&textUnderWay, 1, memory_order_relaxed);
	if (arena_borrow(ROOM, &block) == CUDA_SUCCESS) {
		fetch_into(&block, context, flags);
		arena_return(&block);
	}
	atomic_store_explicit(&textUnderWay, 0, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
}

void text_fetch(uint32_t context) { fetch(context, 0); }

void text_show_last(uint32_t context) { fetch(context, TEXT_AFTER_ALL); }
