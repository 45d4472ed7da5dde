/* Contexts beyond their lookup: creation, destruction and primary contexts. */
#ifndef PEGASUS_API_CONTEXT_H
#define PEGASUS_API_CONTEXT_H

#include "object/object.h"

/*
 * Returns the context of a handle, or NULL. A primary context is found also between its destruction and its next use,
 * because its handle stays valid; of a destroyed context only the device may be read.
 */
struct context *context_kept(uint64_t handle);
/* Returns the primary context of a device without retaining it, creating it if necessary. */
CUresult context_primary(CUdevice device, CUcontext *context);

#endif
