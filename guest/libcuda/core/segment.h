/*
 * The memory that a guest process shares with its worker on the host, and the four messages of the rendezvous. Package
 * callbuf defines the same bytes in Go; golden files there check both.
 *
 * The guest trusts the host more than the reverse, but still reads each of its values once and validates it before use
 * as an offset or a length.
 */
#ifndef PEGASUS_CORE_SEGMENT_H
#define PEGASUS_CORE_SEGMENT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SEGMENT_VERSION = 2,
	SEGMENT_HEADER_BYTES = 4096,
	SEGMENT_CONTEXTS = 256, /* context ids; 0 is no context */
	SLOT_BYTES = 128,
	SLOT_BODY = SLOT_BYTES - 8,
	PACKET_HEADER = 24,
	PACKET_SLOTS = 64,       /* largest packet, in slots, unless the host gives another limit */
	PACKET_SLOTS_MOST = 274, /* upper bound of that limit; a packet never takes more than half of the ring */
	PACKET_PAYLOAD_MOST = PACKET_SLOTS_MOST * SLOT_BODY - PACKET_HEADER,
	REPLY_BYTES = 256,
	REPLY_DATA = 240,
	PACKET_WANTS_REPLY = 1,
	REPORT_NONE = 1,
	REPORT_MADE = 2,
	FEATURE_APART = 1, /* guest and host run under different kernels */
	FEATURE_BELL = 2,  /* with FEATURE_APART: a message to the worker's socket wakes the poller; in a hello: the guest supports it */
};

#define SEGMENT_MAGIC UINT64_C(0x0031555341474550) /* "PEGASU1\0" */

/* Every word that changes has a cache line of its own. (h): written by the host only. */
struct segment_header {
	uint64_t magic;
	uint32_t version, headerBytes;
	uint64_t features, generation, segmentBytes;
	uint32_t ringOffset, ringSlots;
	uint32_t replyOffset, replySlots;
	uint32_t eventOffset, eventWords;
	uint32_t releaseOffset, releaseWords;
	uint64_t arenaOffset, arenaBytes;
	_Alignas(64) _Atomic uint32_t processPoison;    /* (h) result of every call from now on, 0: fine */
	_Alignas(64) _Atomic uint32_t tail;             /* next slot to claim */
	_Alignas(64) _Atomic uint32_t head;             /* (h) slots consumed; futex word */
	_Alignas(64) _Atomic uint32_t pollerParked;     /* futex word of the sleeping poller; FEATURE_BELL: not 0: it waits for a message */
	_Alignas(64) _Atomic uint32_t producersWaiting; /* not 0: a producer sleeps on head */
	_Alignas(64) _Atomic uint32_t spinNanoseconds;  /* (h) how long to spin for a reply before sleeping */
	_Alignas(64) _Atomic uint32_t contextPoison[SEGMENT_CONTEXTS]; /* (h) sticky result by context id */
	_Atomic uint32_t contextOwes[SEGMENT_CONTEXTS]; /* (h) not 0: the context has an error that the next synchronising call fetches */
	_Atomic uint32_t contextText[SEGMENT_CONTEXTS]; /* (h) not 0: the context has device printf output to fetch */
	_Alignas(64) _Atomic uint32_t held;             /* (h) not 0: the poller waits with a call that the gate does not admit yet */
	_Alignas(64) _Atomic uint32_t reportTaken;      /* (h) not 0: the host reads report */
	_Atomic uint32_t packetSlots;                   /* (h) largest number of slots of one packet, 0: PACKET_SLOTS */
	_Alignas(64) _Atomic uint32_t report;           /* 0: unused, REPORT_NONE, or REPORT_MADE until the host takes the report */
	_Alignas(64) uint8_t reportBody[64];            /* the packet that bypasses the ring */
	_Alignas(64) _Atomic uint32_t wordsWait;        /* not 0: the host has left a message for stderr, until it is printed */
	char words[252];                                /* (h) why the next call fails; NUL-terminated */
};

struct ring_slot {
	_Atomic uint64_t seq; /* index + 1 once published */
	uint8_t body[SLOT_BODY];
};

struct packet_header {
	uint16_t op, payloadLength, flags, replySlot;
	uint32_t replyTag, context;
	uint64_t stream;
};

struct reply_slot {
	_Atomic uint32_t tag; /* futex word: tag of the call answered last */
	_Atomic uint32_t waiting; /* not 0: the call sleeps on tag */
	int32_t result;
	uint32_t length;
	uint8_t data[REPLY_DATA];
};

struct event_word {
	_Atomic uint64_t completed; /* (h) serial of the last completed record */
	_Atomic uint64_t waiter;    /* 0, or tag << 32 | slot + 1 of a thread that waits for a record; answered once */
};

enum {
	HELLO_MAGIC = 0x4c454850,   /* "PHEL" */
	WELCOME_MAGIC = 0x4c455750, /* "PWEL" */
	MAP_MAGIC = 0x50414d50,     /* "PMAP" */
	MAPPED_MAGIC = 0x44504d50,  /* "PMPD" */
	WINDOW_BASES = 4,
};
#define NO_WINDOW UINT32_MAX

/* Flags that a process of a virtual machine sends to its agent. */
#define HELLO_BACK (UINT64_C(1) << 32)   /* the process has a worker through an earlier agent; this socket replaces the one to it */
#define HELLO_AFRESH (UINT64_C(1) << 33) /* the process has not accepted a worker from an earlier agent */
#define HELLO_PLACED (UINT64_C(1) << 34) /* the process supports segments at a file offset; in a welcome: this one has an offset */

struct hello {
	uint32_t magic, version;
	uint64_t features;
	uint32_t reserved[4];
};

struct welcome {
	uint32_t magic, version;
	int32_t result; /* CUresult; 0 comes with two descriptors: segment, worker socket */
	uint32_t workerPid;
	uint64_t features, generation, segmentBytes;
	uint64_t arenaBases[WINDOW_BASES], deviceBases[WINDOW_BASES];
	uint64_t deviceBytes;
	char message[128];
	uint64_t segmentOffset; /* offset of the segment in its file; sent with HELLO_PLACED only, else 0 */
};
#define WELCOME_BYTES offsetof(struct welcome, segmentOffset) /* without HELLO_PLACED */

struct map_request {
	uint32_t magic, arenaIndex, deviceIndex, reserved;
};

struct map_reply {
	uint32_t magic;
	int32_t result;
	uint32_t arenaOk, deviceOk;
};

#define SEGMENT_AT(type, field, at) _Static_assert(offsetof(struct type, field) == (at), #type "." #field)
SEGMENT_AT(segment_header, version, 0x008);
SEGMENT_AT(segment_header, features, 0x010);
SEGMENT_AT(segment_header, generation, 0x018);
SEGMENT_AT(segment_header, segmentBytes, 0x020);
SEGMENT_AT(segment_header, ringOffset, 0x028);
SEGMENT_AT(segment_header, replyOffset, 0x030);
SEGMENT_AT(segment_header, eventOffset, 0x038);
SEGMENT_AT(segment_header, releaseOffset, 0x040);
SEGMENT_AT(segment_header, arenaOffset, 0x048);
SEGMENT_AT(segment_header, arenaBytes, 0x050);
SEGMENT_AT(segment_header, processPoison, 0x080);
SEGMENT_AT(segment_header, tail, 0x0c0);
SEGMENT_AT(segment_header, head, 0x100);
SEGMENT_AT(segment_header, pollerParked, 0x140);
SEGMENT_AT(segment_header, producersWaiting, 0x180);
SEGMENT_AT(segment_header, spinNanoseconds, 0x1c0);
SEGMENT_AT(segment_header, contextPoison, 0x200);
SEGMENT_AT(segment_header, contextOwes, 0x600);
SEGMENT_AT(segment_header, contextText, 0xa00);
SEGMENT_AT(segment_header, held, 0xe00);
SEGMENT_AT(segment_header, reportTaken, 0xe40);
SEGMENT_AT(segment_header, report, 0xe80);
SEGMENT_AT(segment_header, reportBody, 0xec0);
SEGMENT_AT(packet_header, stream, 16);
SEGMENT_AT(welcome, message, 112);
SEGMENT_AT(welcome, segmentOffset, 240);
_Static_assert(sizeof(struct ring_slot) == SLOT_BYTES, "ring slot");
_Static_assert(sizeof(struct packet_header) == PACKET_HEADER, "packet header");
_Static_assert(sizeof(struct reply_slot) == REPLY_BYTES, "reply slot");
_Static_assert(sizeof(struct event_word) == 16, "event word");
_Static_assert(sizeof(struct hello) == 32 && sizeof(struct welcome) == 248, "rendezvous");
_Static_assert(sizeof(struct map_request) == 16 && sizeof(struct map_reply) == 16, "rendezvous");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

#endif
