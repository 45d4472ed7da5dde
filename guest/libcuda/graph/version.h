/*
 * Versions of executable graphs: the guest's resources for one state of the graph on the host. They stay until the
 * version's last launch has completed.
 */
#ifndef PEGASUS_GRAPH_VERSION_H
#define PEGASUS_GRAPH_VERSION_H

#include "object/stream.h"
#include "work/box.h"

struct object_ref;

/*
 * A callback, which may be one end of a copy that the guest does itself. It lives in a table, since a callback may
 * become due after its destruction.
 */
struct host_copy_node {
	struct object object;
	struct box box;
	uint64_t staging, bytes; /* in the arena; bytes 0: none */
	enum { HOST_COPY_GATHER, HOST_COPY_SCATTER, HOST_COPY_MOVE, HOST_COPY_NONE } what;
	uint64_t callback; /* 0: none, or dropped with the version */
	struct host_copy_node *next;
};

/* The graphs' lock guards its fields. */
struct exec_version {
	struct host_copy_node *hostCopies;
	struct object_ref *objectRefs; /* user objects removed from the graph that launches may still use */
	bool ends;                  /* the ends of launches are recorded */
	uint64_t context;           /* handle */
	uint64_t end, serial;       /* the event that launches record behind them, by handle, and its latest serial; 0: none */
	bool over;                  /* its context was destroyed */
	struct exec_version *next;  /* in the list of versions that are no longer launched */
};

/*
 * Called after a synchronisation or after a context was destroyed: releases resources that only completed work used,
 * including user objects, which programs wait for.
 */
void versions_synchronised(void);

/* The functions below require the graphs' lock. */

/* Returns a version without resources for a context, or NULL. */
struct exec_version *version_new(uint64_t context);
/* Frees a version that was not launched. */
void version_free(struct exec_version *s);
/* Frees a version after its launches. Accepts NULL. */
void version_retire(struct exec_version *s);
/*
 * Adds a callback, which runs the function or, with NULL, a copy that the caller describes in *added. box may be NULL.
 */
CUresult version_add_host(struct exec_version *s, CUhostFn function, void *data, const struct box *box, struct host_copy_node **added);
/*
 * Creates the event for the ends of launches, if these are recorded: before the first launch, whose end would otherwise
 * remain unknown.
 */
CUresult version_prepare_end(struct exec_version *s);
/* Records that event after a launch in a stream; the resources are unused once it completes. */
CUresult version_mark_end(struct exec_version *s, const struct stream_ref *ref);
/* Reports whether the launches of a version have completed. */
bool version_has_ended(const struct exec_version *s);
/* Releases the resources of retired versions after the completion of their launches. */
void versions_sweep(void);
/* Marks retired versions of a context that the host has destroyed together with all launches. */
void versions_context_ended(uint64_t context);

#endif
