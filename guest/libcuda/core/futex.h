/* Futex waits in bounded slices that preserve the caller's errno. */
#ifndef PEGASUS_CORE_FUTEX_H
#define PEGASUS_CORE_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Longest single sleep, in nanoseconds, so that a waiting thread notices the worker's death. */
#define FUTEX_SLICE_NS 100000000L

/* syscall() because libc's wrappers are cancellation points: a thread must not be cancelled in the middle of a call. */
static inline void futex_wait_for(_Atomic uint32_t *word, uint32_t seen, long ns)
{
	int saved = errno;
	struct timespec slice = {.tv_sec = 0, .tv_nsec = ns};
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &slice, NULL, 0);
	errno = saved;
}

static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen) { futex_wait_for(word, seen, FUTEX_SLICE_NS); }

static inline void futex_wake(_Atomic uint32_t *word, int count)
{
	int saved = errno;
	syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
	errno = saved;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline int64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Bounds of one sleep of poll_backoff, which lasts a quarter of the time waited so far. */
#define FIRST_BACKOFF_NS 50000
#define LONGEST_BACKOFF_NS 1000000

/* Polls until the word differs from seen or ns nanoseconds have passed, with growing sleeps between the polls. */
static inline void poll_backoff(_Atomic uint32_t *word, uint32_t seen, long ns)
{
	int saved = errno;
	int64_t begin = clock_ns(CLOCK_MONOTONIC), waited = 0;
	while (atomic_load_explicit(word, memory_order_acquire) == seen && waited < ns) {
		int64_t pause = waited / 4;
		if (pause < FIRST_BACKOFF_NS)
			pause = FIRST_BACKOFF_NS;
		if (pause > LONGEST_BACKOFF_NS)
			pause = LONGEST_BACKOFF_NS;
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = pause}, NULL);
		waited = clock_ns(CLOCK_MONOTONIC) - begin;
	}
	errno = saved;
}

#endif
