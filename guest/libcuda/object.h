/* The objects behind handles, and their lookup. */
#ifndef PEGASUS_OBJECT_H
#define PEGASUS_OBJECT_H

#include "handle.h"
#include "process.h"
#include "text.h"

#define HANDLE_OF(type, of) ((type)(uintptr_t)(of)->object.id)

/* Completion marker of a stream, for cuStreamQuery: see query.c. */
struct mark {
	_Atomic uint64_t sent; /* number of packets that brought work to the stream */
	uint64_t event;        /* handle of an internal event, or 0 */
	uint64_t at;           /* value of sent when the marker was last placed, or NO_MARK */
	_Atomic uint64_t ended; /* packets up to this number have completed, as found by a blocking call */
	_Atomic uint64_t own;   /* packets of the stream itself that have completed, as found by any call */
	uint32_t end;          /* end of the marker's packet in the ring */
	bool taken;            /* the host has consumed the marker's packet */
};
#define NO_MARK UINT64_MAX

/* Attributes that a program set on a stream. */
struct manner {
	CUaccessPolicyWindow window;      /* hints without effect here */
	CUsynchronizationPolicy policy;   /* how threads wait for the stream; 0: as for its context */
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
};

/* A position in a stream, see moment.h; the zero value precedes all work. */
struct moment {
	uint64_t tail; /* handle of the stream's record, or 0 */
	uint64_t at;   /* number of the position within the stream */
};

struct context {
	struct object object;
	uint32_t wire; /* context id in packets: 1..255 */
	int device;
	_Atomic uint32_t flags;
	bool primary;
	_Atomic uint32_t attached; /* references beyond the first, by cuCtxAttach */
	_Atomic uint32_t cacheConfig, sharedConfig;
	_Atomic uint64_t limits[16];
	struct mark mark; /* of the legacy stream */
	struct manner manner;
	uint64_t tail; /* of the legacy stream: see moment.h */
	uint64_t joint, jointEvent; /* handles, or 0: see ctxevent.c */
	_Atomic bool waits;         /* some event wait has applied to all its streams */
	uint64_t serial; /* unique among all contexts of the process, for cuCtxGetId */
};

struct capturing;
struct captured;

struct stream {
	struct object object;
	uint64_t context; /* handle */
	uint32_t wireContext, flags;
	_Atomic int priority;
	_Atomic(struct capturing *) capturing; /* membership in a capture, or NULL: see capture.h */
	struct mark mark;
	uint64_t tail; /* see moment.h */
	struct manner manner;
};

struct event {
	struct object object;
	uint64_t context;
	uint32_t wireContext, flags;
	_Atomic uint64_t recorded; /* serial of the latest record; continues when the slot is reused */
	_Atomic bool used;         /* recorded at least once */
	_Atomic bool shared;       /* shared with other processes: see ipc.c */
	struct moment behind;      /* position that precedes the latest record; under momentLock */
	_Atomic(struct captured *) captured; /* its latest record was in this capture: see capture.h */
};

struct array {
	struct object object;
	uint64_t context;
	uint32_t wireContext;
	uint64_t width, height, depth;
	uint32_t format, channels, flags, elementBytes;
	bool mipmapped; /* a level of a mipmapped array, and freed with it */
};

enum { MIPMAP_LEVELS = 18 }; /* for a side of 131072 elements */

struct mipmap {
	struct object object;
	uint64_t context;
	unsigned int levels;
	CUarray level[MIPMAP_LEVELS];
};

/* A texture object or, without the texture description, a surface object. */
struct texture {
	struct object object;
	uint64_t context;
	uint32_t wireContext;
	uint64_t given; /* handle issued to the program: its own, unless the device chose one */
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
};

extern struct table contexts, streams, events, arrays, mipmaps, textures, surfaces;

/*
 * Returns the calling thread's current context: CUDA_ERROR_INVALID_CONTEXT without one, CUDA_ERROR_CONTEXT_IS_DESTROYED
 * if it was destroyed, or its sticky error.
 */
CUresult context_current(struct context **context);
/* Returns CUDA_SUCCESS if the calling thread has a current context, failed or not. */
CUresult context_any(void);
/*
 * Returns the context of a handle, or NULL. A primary context is found also between its destruction and its next use,
 * because its handle stays valid; of a destroyed context only the device may be read.
 */
struct context *context_kept(uint64_t handle);
/* As context_current for a handle; NULL means the current context. */
CUresult context_of(CUcontext handle, struct context **context);
/* Reports whether threads that wait for a context sleep instead of spinning, by its flags. */
static inline bool context_sleeps(const struct context *c)
{
	return c && (c->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
}

/*
 * Returns a context's sticky error; on an error it first prints the output of the context's kernels, which may explain
 * the error.
 */
static inline CUresult context_error(uint32_t wire)
{
	uint32_t poison = atomic_load_explicit(&process.header->contextPoison[wire], memory_order_relaxed);
	if (LIKELY(poison == 0))
		return CUDA_SUCCESS;
	text_show(wire);
	return process_result(poison);
}

#endif
