#include "core/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/ring.h"
#include "core/zz_wire.h"

#define ROOM 65536

enum { BEGIN = 1, REPORT = 2 };

static CUresult ask(uint32_t action, const struct staging *block, uint64_t *length)
{
	struct profile_args args = {.action = action};
	struct profile_result answer;
	struct packet p = {.op = OP_PROFILE, .fixed = &args, .fixedBytes = sizeof args};
	if (block) {
		args.arenaOffset = block->offset;
		args.capacity = ROOM;
	}
	CUresult r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		*length = answer.length < ROOM ? answer.length : ROOM;
	return r;
}

static void report(void)
{
	struct staging block;
	uint64_t length = 0;
	if (process_enter() != CUDA_SUCCESS || arena_borrow(ROOM, &block) != CUDA_SUCCESS)
		return;
	if (ask(REPORT, &block, &length) == CUDA_SUCCESS)
		fwrite(arena_at(block.offset), 1, length, stderr);
	arena_return(&block);
}

void profile_begin(void)
{
	const char *wanted = getenv("PEGASUS_SOFT_PROFILE");
	uint64_t none;
	if (!wanted || !*wanted || strcmp(wanted, "0") == 0)
		return;
	if (strcmp(wanted, "1") != 0) {
		setting_ignored("PEGASUS_SOFT_PROFILE", wanted, "1, or 0 for none");
		return;
	}
	CUresult r = ask(BEGIN, NULL, &none);
	if (r == CUDA_SUCCESS)
		atexit(report);
	else
		log_at(LOG_ERROR, "PEGASUS_SOFT_PROFILE: this accelerator has no profile (%d)", (int)r);
}
