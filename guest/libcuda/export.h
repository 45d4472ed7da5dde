/*
 * What an optional component, guest/tables, adds to the library: without it there is no table, and nothing hangs on contexts.
 * What stands here is defined weakly, so that whether a build has the component is a matter of linking.
 */
#ifndef PEGASUS_EXPORT_H
#define PEGASUS_EXPORT_H

#include "cuda.h"

/* The table of an id, or NULL. */
const void *export_table(const CUuuid *id);

/* A context is about to end, and can still be used. No lock is held: the program's functions are called. */
void export_context_ends(CUcontext context);

/* It has ended. */
void export_context_ended(CUcontext context);

/* The primary context of a device, which is made if need be, without retaining it: see context.c. */
CUresult context_primary(CUdevice device, CUcontext *context);

#endif
