/*
 * Host callbacks. The host stops a stream where a callback is due. A thread of the guest process, started when the
 * first callback is queued, fetches the due callbacks and runs them.
 */
#ifndef PEGASUS_WORK_CALLBACK_H
#define PEGASUS_WORK_CALLBACK_H

#include "object/stream.h"

/* A function of the program with its arguments; exactly one of the two functions is set. */
struct callback_call {
	CUstream stream; /* as passed by the program */
	CUstreamCallback withStatus;
	CUhostFn plain; /* not called after an error */
	void *userData;
};

/* Queues a callback behind the work of a stream. */
CUresult callback_queue(const struct stream_ref *ref, const struct callback_call *call);
/*
 * Registers a callback of a graph, which the host may run any number of times until it is dropped. It receives no
 * errors.
 */
CUresult callback_keep(CUhostFn function, void *userData, uint64_t *id);
void callback_drop(uint64_t id);

/*
 * Blocks until the callbacks of a context that is about to be destroyed have run, however long its work takes, since
 * programs free the resources of the work in them. Returns early when the context or the worker has failed, when a
 * running callback is blocked, since it may wait for the caller, and in a program with stream memory waits, which may
 * never be satisfied.
 */
void callback_await(uint64_t serial, uint32_t wire);
extern _Atomic bool memopWaits; /* some stream was made to wait for a memory word */
/* Called after a context was destroyed, without locks: runs its pending callbacks with an error. */
void callback_context_gone(uint64_t serial);

#endif
