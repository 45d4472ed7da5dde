#define _GNU_SOURCE
#include "work/callback.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/futex.h"
#include "core/ring.h"
#include "core/zz_wire.h"

struct callback {
	struct object object;
	uint64_t context; /* the context's serial: a later primary context has the same handle */
	struct callback_call call;
	bool lasting; /* belongs to a graph: becomes due repeatedly */
};

_Atomic bool memopWaits;

static struct table callbacks = HANDLE_TABLE(HANDLE_CALLBACK, struct callback, 60000);
static _Atomic uint32_t passing; /* callbacks that are freed after one run */
static pthread_mutex_t startLock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool started;
static _Atomic pid_t runner;     /* the thread that runs due callbacks, while it does; else 0 */
static _Atomic uint64_t running; /* serial of the running callback's context */
static _Atomic uint32_t runs;    /* number of callbacks started */

static void run(struct callback *c, CUresult status)
{
	struct callback mine = *c;
	if (!mine.lasting) {
		if (!handle_retire(c))
			return;
		handle_free(&callbacks, c);
		atomic_fetch_sub(&passing, 1);
	}
	thread.inCallback = true;
	if (mine.call.withStatus)
		mine.call.withStatus(mine.call.stream, status, mine.call.userData);
	else if (status == CUDA_SUCCESS)
		mine.call.plain(mine.call.userData);
	thread.inCallback = false;
}

static void run_due(struct callback *c, CUresult status)
{
	atomic_store(&running, c->context); /* before the table entry is freed, see callback_await */
	atomic_store(&runner, (pid_t)syscall(SYS_gettid));
	atomic_fetch_add(&runs, 1);
	run(c, status);
	atomic_store(&runner, 0);
	atomic_store(&running, 0);
}

static void run_lost(void *object, void *status) { run(object, *(CUresult *)status); }

static CUresult wait_for_due(uint64_t done, struct callback_wait_result *due)
{
	struct callback_wait_args args = {.done = done};
	struct packet p = {.op = OP_CALLBACK_WAIT, .fixed = &args, .fixedBytes = sizeof args, .beside = true};
	struct call call = {.patient = true};
	uint32_t got = 0;
	CUresult r = call_start(&call, &p);
	if (r == CUDA_SUCCESS)
		r = call_finish(&call, due, sizeof *due, &got);
	return r == CUDA_SUCCESS && got != sizeof *due ? CUDA_ERROR_UNKNOWN : r;
}

static CUresult start_thread(uint64_t done);

/*
 * Cleanup handler: a callback of the program has ended its thread. Starts another one, or the stream would be blocked
 * for ever.
 */
static void take_over(void *due)
{
	atomic_store(&runner, 0);
	atomic_store(&running, 0);
	start_thread(((struct callback_wait_result *)due)->callback);
}

static void serve_on(struct callback_wait_result *due)
{
	int deferred;
	CUresult r;
	while ((r = wait_for_due(due->callback, due)) == CUDA_SUCCESS) {
		struct callback *c = handle_find(&callbacks, due->callback);
		if (c)
			run_due(c, process_result((uint32_t)due->status));
		pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &deferred); /* whatever the program has set: this thread must not be cancelled with a due callback */
	}
	/*
	 * The worker is lost: no callback becomes due any more, so run all of them now and let threads that wait for one
	 * continue.
	 */
	handle_each(&callbacks, run_lost, &r);
}

static void *serve(void *done)
{
	struct callback_wait_result due = {.callback = (uint64_t)(uintptr_t)done};
	pthread_cleanup_push(take_over, &due);
	serve_on(&due);
	pthread_cleanup_pop(0);
	return NULL;
}

static void run_of_context(void *object, void *serial)
{
	struct callback *c = object;
	if (c->context == *(uint64_t *)serial)
		run(c, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

void callback_context_gone(uint64_t serial) { handle_each(&callbacks, run_of_context, &serial); }

struct left {
	uint64_t serial;
	bool any;
};

static void look_whether_left(void *object, void *left)
{
	struct left *l = left;
	l->any |= ((struct callback *)object)->context == l->serial;
}

static bool any_left(uint64_t serial)
{
	struct left l = {.serial = serial};
	handle_each(&callbacks, look_whether_left, &l);
	return l.any || atomic_load(&running) == serial;
}

/* Reports whether a thread sleeps in the kernel. A runnable thread without a processor counts as running. */
static bool sleeps(pid_t id)
{
	char path[64], stat[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)id);
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true; /* without /proc: assume that it sleeps */
	long n = syscall(SYS_read, fd, stat, sizeof stat - 1);
	syscall(SYS_close, fd);
	stat[n > 0 ? n : 0] = 0;
	const char *name = strrchr(stat, ')');
	return !name || !name[1] || name[2] != 'R';
}

/* A callback counts as blocked when it was found asleep in this many consecutive checks. */
enum { ASLEEP_LOOKS = 30 };
#define LOOK_NS 10000000

void callback_await(uint64_t serial, uint32_t wire)
{
	int saved = errno;
	long pause = FIRST_BACKOFF_NS;
	uint32_t seen = atomic_load(&runs);
	if (!started || thread.inCallback || atomic_load_explicit(&memopWaits, memory_order_relaxed))
		return;
	for (int asleep = 0; asleep < ASLEEP_LOOKS && any_left(serial) && process_check_alive() == CUDA_SUCCESS && context_error(wire) == CUDA_SUCCESS;) {
		syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = pause}, NULL);
		pause = pause < LOOK_NS / 2 ? 2 * pause : LOOK_NS;
		pid_t id = atomic_load(&runner);
		uint32_t now = atomic_load(&runs);
		asleep = pause == LOOK_NS && id != 0 && now == seen && sleeps(id) ? asleep + 1 : 0;
		seen = now;
	}
	errno = saved;
}

/*
 * Starts the callback thread with the program's signals blocked. The thread first reports callback done as finished,
 * unless done is 0.
 */
static CUresult start_thread(uint64_t done)
{
	pthread_attr_t attributes;
	pthread_t id;
	sigset_t all, before;
	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&id, &attributes, serve, (void *)(uintptr_t)done);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static CUresult ensure_thread(void)
{
	pthread_mutex_lock(&startLock);
	CUresult r = started ? CUDA_SUCCESS : start_thread(0);
	started = r == CUDA_SUCCESS;
	pthread_mutex_unlock(&startLock);
	return r;
}

/*
 * Allocates a callback that runs once. While the table is full it blocks until a callback has run, like a full ring;
 * but it fails within a callback, where no other one could run, and if all entries belong to graphs, which stay.
 */
static CUresult take(const struct stream_ref *ref, struct callback **c)
{
	while (!(*c = handle_new(&callbacks))) {
		CUresult r = process_check_alive();
		if (r == CUDA_SUCCESS)
			r = context_error(ref->context);
		if (r == CUDA_SUCCESS && (thread.inCallback || atomic_load(&passing) == 0))
			r = CUDA_ERROR_OUT_OF_MEMORY;
		if (r != CUDA_SUCCESS)
			return r;
		syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 200000}, NULL);
	}
	atomic_fetch_add(&passing, 1);
	return CUDA_SUCCESS;
}

CUresult callback_queue(const struct stream_ref *ref, const struct callback_call *call)
{
	CUresult r = ensure_thread();
	if (r != CUDA_SUCCESS)
		return r;
	const struct context *owner = handle_find(&contexts, ref->contextHandle);
	if (!owner)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	uint64_t serial = owner->serial;
	struct callback *c;
	r = take(ref, &c);
	if (r != CUDA_SUCCESS)
		return r;
	c->context = serial;
	c->call = *call;
	c->lasting = false;
	uint64_t id = c->object.id;
	handle_publish(c);
	struct host_callback_args args = {.callback = id};
	struct packet p = {
		.op = OP_HOST_CALLBACK, .context = ref->context, .stream = ref->stream, .sent = &ref->marker->sent, .fixed = &args, .fixedBytes = sizeof args,
	};
	r = ring_post(&p);
	if (r != CUDA_SUCCESS && handle_retire(c)) {
		handle_free(&callbacks, c);
		atomic_fetch_sub(&passing, 1);
	}
	return r;
}

CUresult callback_keep(CUhostFn function, void *userData, uint64_t *id)
{
	CUresult r = ensure_thread();
	if (r != CUDA_SUCCESS)
		return r;
	struct callback *c = handle_new(&callbacks);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->context = 0;
	c->call = (struct callback_call){.plain = function, .userData = userData};
	c->lasting = true;
	*id = c->object.id;
	handle_publish(c);
	return CUDA_SUCCESS;
}

void callback_drop(uint64_t id)
{
	struct callback *c = handle_find(&callbacks, id);
	if (c && handle_retire(c))
		handle_free(&callbacks, c);
}
