#include "core/kernel_check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/ring.h"
#include "core/zz_wire.h"

enum { BOUNDS = 1, ORDER = 2 };

static _Atomic bool bounded;

bool check_bounds(void) { return atomic_load_explicit(&bounded, memory_order_relaxed); }

static uint64_t any_seed(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return ((uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 30) ^ ((uint64_t)getpid() << 12)) % 1000000 + 1;
}

/* Adds one check by name; the check order may have a seed after a colon. Returns false for an unknown name. */
static bool add_check(struct check_args *args, const char *name, size_t length)
{
	static const char bounds[] = "bounds", order[] = "order";
	size_t n = sizeof order - 1;
	if (length == sizeof bounds - 1 && memcmp(name, bounds, length) == 0) {
		args->checks |= BOUNDS;
		return true;
	}
	if (length < n || memcmp(name, order, n) != 0)
		return false;
	if (length > n) {
		char *end;
		if (name[n] != ':' || name[n + 1] < '0' || name[n + 1] > '9')
			return false;
		args->seed = strtoull(name + n + 1, &end, 10);
		if (end != name + length || args->seed == 0)
			return false;
	}
	args->checks |= ORDER;
	return true;
}

void check_begin(void)
{
	const char *wanted = getenv("PEGASUS_SOFT_CHECK");
	struct check_args args = {0};
	if (!wanted || !*wanted)
		return;
	for (const char *at = wanted;;) {
		size_t length = strcspn(at, ",");
		if (length > 0 && !add_check(&args, at, length))
			log_at(LOG_ERROR, "PEGASUS_SOFT_CHECK: %.*s is no check; there are bounds, order and order:SEED, with commas between", (int)length, at);
		if (at[length] == '\0')
			break;
		at += length + 1;
	}
	if (args.checks == 0)
		return;
	if ((args.checks & ORDER) && args.seed == 0)
		args.seed = any_seed();
	struct packet p = {.op = OP_CHECK, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, NULL, 0);
	if (r != CUDA_SUCCESS)
		log_at(LOG_ERROR, "PEGASUS_SOFT_CHECK: this accelerator has no checks (%d)", (int)r);
	else
		atomic_store_explicit(&bounded, args.checks & BOUNDS, memory_order_relaxed);
	if (r == CUDA_SUCCESS && (args.checks & ORDER))
		log_at(LOG_ERROR, "the order of warps is random; PEGASUS_SOFT_CHECK=order:%" PRIu64 " repeats it", args.seed);
}
