/* The state of the process's connection, and the checks that the worker is alive. */
#define _GNU_SOURCE
#include "core/process.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/futex.h"
#include "core/reconnect.h"

/* How often a thread that only queues calls checks that its worker is alive. */
#define CHECK_EVERY_NS 40000000

struct process process = {.socket = -1};
_Thread_local struct thread thread __attribute__((tls_model("initial-exec")));

/* Prints once the host's message about a failure, such as the location of a kernel's fault. */
static void show_last_words(void)
{
	char text[sizeof process.header->words];
	uint32_t waits = 1;
	if (!process.header || !atomic_compare_exchange_strong_explicit(&process.header->wordsWait, &waits, 0, memory_order_acquire, memory_order_relaxed))
		return;
	memcpy(text, process.header->words, sizeof text);
	text[sizeof text - 1] = 0;
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	log_at(LOG_ERROR, "%s", text);
}

CUresult process_result(uint32_t fromHost)
{
	if (UNLIKELY(fromHost != 0))
		show_last_words();
	return fromHost <= CUDA_ERROR_UNKNOWN ? (CUresult)fromHost : CUDA_ERROR_UNKNOWN;
}

CUresult process_refusal(void)
{
	uint32_t poison;
	switch (atomic_load_explicit(&process.state, memory_order_acquire)) {
	case PROCESS_READY:
		poison = atomic_load_explicit(&process.header->processPoison, memory_order_relaxed);
		return process_result(poison);
	case PROCESS_LOST:
		return (CUresult)atomic_load_explicit(&process.fault, memory_order_relaxed);
	default:
		return CUDA_ERROR_NOT_INITIALIZED;
	}
}

static bool hung_up(void)
{
	int saved = errno;
	struct pollfd p = {.fd = process.socket, .events = POLLIN};
	struct timespec now = {0};
	long n = syscall(SYS_ppoll, &p, 1, &now, NULL, 0);
	errno = saved;
	return n > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* Marks the worker as lost. Its reason in the poison word, if there is one, is the result of all calls from now on. */
static CUresult lose(void)
{
	uint32_t poison = atomic_load_explicit(&process.header->processPoison, memory_order_acquire);
	CUresult r = poison == 0 ? CUDA_ERROR_UNKNOWN : process_result(poison);
	atomic_store_explicit(&process.fault, (uint32_t)r, memory_order_relaxed);
	if (atomic_exchange_explicit(&process.state, PROCESS_LOST, memory_order_release) == PROCESS_READY)
		log_at(LOG_ERROR, "the worker on the host has ended; every call returns %d from now on", (int)r);
	return r;
}

CUresult process_check_alive(void)
{
	CUresult r = process_enter();
	if (UNLIKELY(r != CUDA_SUCCESS))
		return r;
	int64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
	if (LIKELY(now < atomic_load_explicit(&process.checkNext, memory_order_relaxed)))
		return CUDA_SUCCESS;
	atomic_store_explicit(&process.checkNext, now + CHECK_EVERY_NS, memory_order_relaxed);
	if (LIKELY(!hung_up()) || (process.apart && reconnect()))
		return process_enter();
	return lose();
}

/*
 * Reports whether a descriptor is the worker's socket: the program may have closed its number and reused it for a
 * socket of its own.
 */
static bool is_ours(int fd)
{
	struct stat s;
	return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) && s.st_ino == process.socketInode;
}

void process_take_socket(int fd)
{
	struct stat s;
	process.socket = fd;
	process.socketInode = fstat(fd, &s) == 0 ? s.st_ino : 0;
}

void process_notify_worker(void)
{
	int saved = errno;
	if (is_ours(process.socket))
		syscall(SYS_sendto, process.socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	errno = saved;
}

/*
 * The child of a process that had called cuInit has no segment (it is not inherited) and must not keep the socket, or
 * the worker would outlive its guest. All calls return CUDA_ERROR_NOT_INITIALIZED, cuInit included.
 */
void process_forked(void)
{
	if (atomic_load_explicit(&process.state, memory_order_relaxed) == PROCESS_NEW && process.socket < 0)
		return;
	atomic_store_explicit(&process.state, PROCESS_FORKED, memory_order_relaxed);
	if (is_ours(process.socket))
		close(process.socket);
	process.socket = -1;
}
