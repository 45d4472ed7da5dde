/*
 * The objects behind handles, and finding them.
 */
#ifndef PEGASUS_OBJECT_H
#define PEGASUS_OBJECT_H

#include "handle.h"
#include "process.h"
#include "text.h"

#define HANDLE_OF(type, of) ((type)(uintptr_t)(of)->object.id)

/* What cuStreamQuery knows of a stream: see query.c. */
struct mark {
	_Atomic uint64_t sent; /* packets that brought work to the stream */
	uint64_t event;        /* handle of an event that nobody else knows, or 0 */
	uint64_t at;           /* what had been sent when the stream was last marked, or NO_MARK */
	_Atomic uint64_t ended; /* packets up to here have ended, as a call that waited found */
	uint32_t end;          /* of the mark's packet in the ring */
	bool taken;            /* by the host */
};
#define NO_MARK UINT64_MAX

/* What a program set of a stream. */
struct manner {
	CUaccessPolicyWindow window;      /* hints that nothing here follows */
	CUsynchronizationPolicy policy;   /* how threads wait for it; 0: as for its context */
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
};

/* A point of a stream, see moment.h; all zeros: long ago. */
struct moment {
	uint64_t tail; /* handle of what is known of the stream, or 0 */
	uint64_t at;   /* how many such points it had */
};

struct context {
	struct object object;
	uint32_t wire; /* context id in packets: 1..255 */
	int device;
	_Atomic uint32_t flags;
	bool primary;
	_Atomic uint32_t attached; /* uses beyond the first, by cuCtxAttach */
	_Atomic uint32_t cacheConfig, sharedConfig;
	_Atomic uint64_t limits[16];
	struct mark mark; /* of the legacy stream */
	struct manner manner;
	uint64_t tail; /* of the legacy stream: see moment.h */
	uint64_t joint, jointEvent; /* handles, or 0: see ctxevent.c */
	_Atomic bool waits;         /* all its streams waited for an event once */
	uint64_t serial; /* unique among all contexts ever, for cuCtxGetId */
};

struct capturing;
struct captured;

struct stream {
	struct object object;
	uint64_t context; /* handle */
	uint32_t wireContext, flags;
	_Atomic int priority;
	_Atomic(struct capturing *) capturing; /* its part in a capture, or NULL: see capture.h */
	struct mark mark;
	uint64_t tail; /* see moment.h */
	struct manner manner;
};

struct event {
	struct object object;
	uint64_t context;
	uint32_t wireContext, flags;
	_Atomic uint64_t recorded; /* serial of the latest record; goes on when the slot is used again */
	_Atomic bool used;         /* was ever recorded */
	_Atomic bool shared;       /* other processes know it: see ipc.c */
	struct moment behind;      /* what comes before the latest record; under momentLock */
	_Atomic(struct captured *) captured; /* its latest record was in a capture: see capture.h */
};

struct array {
	struct object object;
	uint64_t context;
	uint32_t wireContext;
	uint64_t width, height, depth;
	uint32_t format, channels, flags, elementBytes;
	bool mipmapped; /* goes with what it is a level of */
};

enum { MIPMAP_LEVELS = 18 }; /* of a side of 131072 elements */

struct mipmap {
	struct object object;
	uint64_t context;
	unsigned int levels;
	CUarray level[MIPMAP_LEVELS];
};

/* A texture or, without its description as a texture, a surface. */
struct texture {
	struct object object;
	uint64_t context;
	uint32_t wireContext;
	uint64_t given; /* the handle that the program has: its own, unless the device chose one */
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
};

extern struct table contexts, streams, events, arrays, mipmaps, textures, surfaces;

/* The calling thread's current context: 201 without one, 709 when it was destroyed meanwhile, or its sticky error. */
CUresult context_current(struct context **context);
/* CUDA_SUCCESS if the calling thread has a current context, whether that has failed or not. */
CUresult context_any(void);
/*
 * The context of a handle, or NULL: a primary context also between its end and its next use, for its handle stays valid. Of one
 * that has ended only the device may be read.
 */
struct context *context_kept(uint64_t handle);
/* As context_current, by handle; NULL means the current one. */
CUresult context_of(CUcontext handle, struct context **context);
/* Whether threads that wait for a context are to sleep, by its flags. */
static inline bool context_sleeps(const struct context *c)
{
	return c && (c->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
}

/* A context's sticky error, and what its kernels had to say, perhaps about that. */
static inline CUresult context_error(uint32_t wire)
{
	uint32_t poison = atomic_load_explicit(&process.header->contextPoison[wire], memory_order_relaxed);
	if (LIKELY(poison == 0))
		return CUDA_SUCCESS;
	text_show(wire);
	return process_result(poison);
}

#endif
