/*
 * Per-process state of the library: the state of the connection, the location of the segment, and per-thread data.
 *
 * Lock ordering, for the whole library. A thread that holds a lock takes only locks of later lines:
 *
 *   start of the process (core/connect.c), which a fork holds
 *   contexts (api/context.c); events of contexts (api/context_event.c)
 *   graphs and captures (graph/graph.h)
 *   libraries (image/library.c)
 *   contents of modules (image/module.c)
 *   references (api/reference.c); host copies of graphs (graph/version.c); imported pools (work/pool_share.c)
 *   records of events (object/event.c)
 *   timelines and pools (object/stream_timeline.h)
 *   reserved addresses (work/vmm.c); moved host memory (work/hostmap.c)
 *   device printf (core/device_printf.c)
 *   ranges (core/range.c); the arena (core/arena.c); each table of handles (core/handle.h)
 *
 * All other locks guard data of one file, and no other lock is taken under them except those of the last line. No lock
 * is held while a function of the program runs.
 */
#ifndef PEGASUS_CORE_PROCESS_H
#define PEGASUS_CORE_PROCESS_H

#include <pthread.h>
#include <stdbool.h>

#include "cuda.h"
#include "core/log.h"
#include "core/segment.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum process_state {
	PROCESS_NEW,    /* before cuInit, or after a failed one */
	PROCESS_READY,  /* connected to a worker */
	PROCESS_LOST,   /* the worker is lost: every call returns process.fault */
	PROCESS_FORKED, /* child of a process that had called cuInit */
};

/* cuInit writes the fields before state becomes READY; afterwards they are constant. */
struct process {
	_Atomic uint32_t state;
	_Atomic uint32_t fault;  /* result of every call once state is LOST */
	_Atomic int64_t checkNext; /* coarse time of the next check of the worker's socket */

	struct segment_header *header;
	struct ring_slot *ring;
	uint32_t ringSlots;
	struct reply_slot *replies;
	uint32_t replySlots;
	struct event_word *events; /* by event id */
	uint32_t eventWords;
	_Atomic uint32_t *releases;
	uint32_t releaseWords;
	uint8_t *arena;   /* address of the arena in this process */
	uint64_t arenaBytes;
	bool arenaShared; /* the worker maps it at the same address */
	uint64_t deviceBase, deviceBytes;

	bool apart; /* the worker runs under another kernel: a futex of one side cannot wake the other */
	bool bell;  /* a message to the worker's socket wakes the poller */

	void *view;
	uint64_t viewBytes;
	_Atomic uint64_t socketInode; /* inode of socket: the program may have closed the descriptor and reused its number */
	int socket; /* to the worker: sends nothing, accepts doorbell messages, hangs up when the worker dies */
};

extern struct process process;

struct context;
struct thread_stream;

/* Per-thread data. Small, since it lies in the static TLS block. */
struct thread {
	uint64_t *stack; /* context handles, the current one last */
	uint32_t depth, capacity;
	uint64_t inlineStack[4];
	uint32_t replySlot; /* index + 1, 0: none claimed yet */
	uint32_t replyBusy; /* a call of this thread waits in replySlot */
	struct thread_stream *streams; /* per-thread default streams, by context */
	bool registered;               /* see thread_register */
	bool inCallback;               /* the thread runs a host callback of the program */
};

extern _Thread_local struct thread thread __attribute__((tls_model("initial-exec")));

/* Returns the error of every call after the fast check of process_enter has failed. */
CUresult process_refusal(void);
/* Checks the worker's socket if the check is due; returns the result of process_enter. */
CUresult process_check_alive(void);
/* Makes a file descriptor the socket to the worker. */
void process_take_socket(int fd);
/*
 * Rings the worker's doorbell with a message. Dropping one when the socket is full is harmless: earlier ones are still
 * queued.
 */
void process_notify_worker(void);
/* Converts a result from the host into a valid CUresult. */
CUresult process_result(uint32_t fromHost);

/* Start of every call: returns success, or the error that the call has to return. */
static inline CUresult process_enter(void)
{
	if (UNLIKELY(atomic_load_explicit(&process.state, memory_order_acquire) != PROCESS_READY))
		return process_refusal();
	if (UNLIKELY(atomic_load_explicit(&process.header->processPoison, memory_order_relaxed) != 0))
		return process_refusal();
	return CUDA_SUCCESS;
}

/* Marks the child of a fork as not connected, and closes its copy of the socket. */
void process_forked(void);

#endif
