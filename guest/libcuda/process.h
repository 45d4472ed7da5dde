/*
 * What the library knows of its process: whether calls can be made, where the
 * segment lies, and what each thread carries.
 */
#ifndef PEGASUS_PROCESS_H
#define PEGASUS_PROCESS_H

#include <pthread.h>
#include <stdbool.h>

#include "cuda.h"
#include "segment.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum process_state {
	PROCESS_NEW,    /* before cuInit, or after one that failed */
	PROCESS_READY,  /* a worker serves us */
	PROCESS_LOST,   /* the worker is gone: every call returns process.fault */
	PROCESS_FORKED, /* child of a process that had called cuInit */
};

/* Written by cuInit before state becomes READY, constant afterwards. */
struct process {
	_Atomic uint32_t state;
	_Atomic uint32_t fault;  /* result of every call once LOST */
	_Atomic int64_t lookNext; /* coarse time of the next look at the worker's socket */

	struct segment_header *header;
	struct ring_slot *ring;
	uint32_t ringSlots;
	struct reply_slot *replies;
	uint32_t replySlots;
	struct event_word *events; /* by event id */
	uint32_t eventWords;
	_Atomic uint32_t *releases;
	uint32_t releaseWords;
	uint8_t *arena;   /* where we see the arena */
	uint64_t arenaBytes;
	bool arenaShared; /* the worker sees it at the same address */
	uint64_t deviceBase, deviceBytes;

	bool apart; /* the worker runs under another kernel: neither can wake the other */
	bool bell;  /* but for a message to it */

	void *view;
	uint64_t viewBytes;
	_Atomic uint64_t socketInode; /* of the socket: the program may have closed its number, and use that for another */
	int socket; /* to the worker: says nothing, may be told to look, hangs up when the worker dies */
};

extern struct process process;

struct context;
struct thread_stream;

/* One thread's part. Small, since it lives in the static TLS block. */
struct thread {
	uint64_t *stack; /* context handles, the current one last */
	uint32_t depth, capacity;
	uint64_t inlineStack[4];
	uint32_t replySlot; /* index + 1, 0: none taken yet */
	uint32_t replyBusy; /* a call of this thread is waiting in replySlot */
	struct thread_stream *streams; /* per-thread default streams, by context */
	bool registered;               /* thread_ended will be called */
	bool inCallback;               /* runs a host callback of the program */
};

extern _Thread_local struct thread thread __attribute__((tls_model("initial-exec")));

/* Makes sure that thread_ended runs when this thread ends. */
void thread_register(void);

/* Why calls cannot be made, given that the fast test of process_enter failed. */
CUresult process_refusal(void);
/* Looks at the worker's socket if it is time; the result is process_enter's. */
CUresult process_look(void);
/* Makes a descriptor the socket to the worker. */
void process_take_socket(int fd);
/* Has the worker look into the ring, by a message that others pass on. One that doesn't fit isn't missed: there are more before it. */
void process_ring(void);
/* A result from the host, which must not turn into a wild number. */
CUresult process_result(uint32_t fromHost);

/* Every call begins here: success, or the result that it has to return. */
static inline CUresult process_enter(void)
{
	if (UNLIKELY(atomic_load_explicit(&process.state, memory_order_acquire) != PROCESS_READY))
		return process_refusal();
	if (UNLIKELY(atomic_load_explicit(&process.header->processPoison, memory_order_relaxed) != 0))
		return process_refusal();
	return CUDA_SUCCESS;
}

/* Starts the process's part; idempotent. */
CUresult process_start(void);

/* Log levels of PEGASUS_LOG, in order. */
enum log_level { LOG_OFF, LOG_ERROR, LOG_INFO, LOG_DEBUG };
void log_at(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs that the value of an environment variable has no effect, and which values have one. The caller does so once. */
void setting_ignored(const char *name, const char *value, const char *wanted);

#endif
