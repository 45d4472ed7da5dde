/* The objects behind handles, and their tables. */
#ifndef PEGASUS_OBJECT_OBJECT_H
#define PEGASUS_OBJECT_OBJECT_H

#include "core/handle.h"
#include "core/process.h"

#define HANDLE_OF(type, of) ((type)(uintptr_t)(of)->object.id)

/* Completion marker of a stream, for cuStreamQuery: see marker.c. */
struct completion_marker {
	_Atomic uint64_t sent; /* number of packets that brought work to the stream */
	uint64_t event;        /* handle of an internal event, or 0 */
	uint64_t at;           /* value of sent when the marker was last placed, or NO_MARKER */
	_Atomic uint64_t ended; /* packets up to this number have completed, as found by a blocking call */
	_Atomic uint64_t own;   /* packets of the stream itself that have completed, as found by any call */
	uint32_t end;          /* end of the marker's packet in the ring */
	bool taken;            /* the host has consumed the marker's packet */
};
#define NO_MARKER UINT64_MAX

/* Attributes that a program set on a stream. */
struct stream_attributes {
	CUaccessPolicyWindow window;      /* hints without effect here */
	CUsynchronizationPolicy policy;   /* how threads wait for the stream; 0: as for its context */
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
};

/* A position in a stream, see stream_timeline.h; the zero value precedes all work. */
struct stream_position {
	uint64_t timeline; /* handle of the stream's record, or 0 */
	uint64_t at;       /* number of the position within the stream */
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
	struct completion_marker marker; /* of the legacy stream */
	struct stream_attributes attributes;
	uint64_t timeline; /* of the legacy stream: see stream_timeline.h */
	uint64_t joint, jointEvent; /* handles, or 0: see api/context_event.c */
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
	_Atomic(struct capturing *) capturing; /* membership in a capture, or NULL: see graph/capture.h */
	struct completion_marker marker;
	uint64_t timeline; /* see stream_timeline.h */
	struct stream_attributes attributes;
};

struct event {
	struct object object;
	uint64_t context;
	uint32_t wireContext, flags;
	_Atomic uint64_t recorded; /* serial of the latest record; continues when the slot is reused */
	_Atomic bool used;         /* recorded at least once */
	_Atomic bool shared;       /* shared with other processes: see api/ipc.c */
	struct stream_position behind;      /* position that precedes the latest record; under timelineLock */
	_Atomic(struct captured *) captured; /* its latest record was in this capture: see graph/capture.h */
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

#endif
