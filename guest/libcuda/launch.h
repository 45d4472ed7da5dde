/*
 * What a launch is before it travels: once as a packet, or in a graph.
 */
#ifndef PEGASUS_LAUNCH_H
#define PEGASUS_LAUNCH_H

#include "module.h"
#include "ring.h"
#include "stream.h"
#include "zz_wire.h"

#define LAUNCH_COOPERATIVE 1u
/* The sides of clusters, of which none is larger than a byte can say; zeros: none. */
#define LAUNCH_CLUSTER(x, y, z) ((uint32_t)(x) << 8 | (uint32_t)(y) << 16 | (uint32_t)(z) << 24)
#define LAUNCH_CLUSTERED LAUNCH_CLUSTER(255, 255, 255)
/* How many blocks a cluster may have on all devices that have any, and on some where a function is allowed more. */
enum { CLUSTER_MOST = 8, CLUSTER_MOST_ANYWHERE = 16 };
/* What one packet can carry beside the fixed part. */
#define PACKET_PARAMS (PACKET_PAYLOAD_MOST - (int)sizeof(struct launch_args))
_Static_assert(PACKET_PARAMS >= 32764, "a kernel may have so many bytes of parameters");

/* What travels of a launch, taken from the program and from a function that is held. */
struct parcel {
	struct place place;
	struct launch_args args;
	const void *params; /* the program's, or room, or more */
	uint32_t paramBytes;
	void *more;
	uint8_t room[4096]; /* enough for nearly all: a thread's stack may be small */
};

/* What a launch of the function with that shape is refused with: all that is known before it travels. */
CUresult launch_check(const struct function *f, const struct launch_args *shape);
/*
 * Checks a launch of a function that is held, and gathers its parameters. args has its shape and flags, and gets the rest.
 * Whatever comes of it, launch_unpack must be called.
 */
CUresult launch_pack(const struct function *f, void **values, void **extra, struct parcel *p);
void launch_unpack(struct parcel *p);

#endif
