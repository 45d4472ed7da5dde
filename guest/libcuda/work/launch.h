/* Preparation of kernel launches, for a packet or a graph node. */
#ifndef PEGASUS_WORK_LAUNCH_H
#define PEGASUS_WORK_LAUNCH_H

#include <stdlib.h>

#include "core/ring.h"
#include "core/zz_wire.h"
#include "image/module.h"
#include "object/stream.h"

#define LAUNCH_COOPERATIVE 1u
/* Cluster dimensions, each of which fits a byte; zeros: no cluster. */
#define LAUNCH_CLUSTER(x, y, z) ((uint32_t)(x) << 8 | (uint32_t)(y) << 16 | (uint32_t)(z) << 24)
#define LAUNCH_CLUSTERED LAUNCH_CLUSTER(255, 255, 255)
/*
 * Blocks per cluster that every device with clusters supports, and the largest number on any device for functions that
 * permit non-portable sizes.
 */
enum { CLUSTER_MOST = 8, CLUSTER_MOST_ANYWHERE = 16 };
/* Payload of a packet beside the fixed part. */
#define PACKET_PARAMS (PACKET_PAYLOAD_MOST - (int)sizeof(struct launch_args))
_Static_assert(PACKET_PARAMS >= 32764, "a kernel may have so many bytes of parameters");

/* A packed launch: the packet's contents, from the program and from a held function. */
struct packed_launch {
	struct stream_ref ref;
	struct launch_args args;
	const void *params; /* the program's memory, room or more */
	uint32_t paramBytes;
	void *more;
	uint8_t room[4096]; /* large enough for nearly all launches; not larger, because a thread's stack may be small */
};

/* Returns the error of a launch of the function with that shape, as far as the guest can determine it. */
CUresult launch_check(const struct function *f, const struct launch_args *shape);
/*
 * Checks a launch of a held function and packs its parameters. On entry args holds shape and flags; the call fills the
 * rest. launch_unpack must be called whatever the result.
 */
CUresult launch_pack(const struct function *f, void **values, void **extra, struct packed_launch *p);
static inline void launch_unpack(struct packed_launch *p)
{
	if (UNLIKELY(p->more))
		free(p->more);
}

#endif
