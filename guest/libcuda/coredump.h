/*
 * What programs set about core dumps of kernels that fail. It is kept and answered, for each context and for those that are made
 * later; nothing writes such dumps, whose format is the debugger's of NVIDIA.
 */
#ifndef PEGASUS_COREDUMP_H
#define PEGASUS_COREDUMP_H

#include <stdint.h>

#include "object.h"

/* A context was created, with these flags; it begins with what holds for all. */
void coredump_context_begins(uint64_t serial, uint32_t flags);
/* A context has gone. */
void coredump_context_gone(uint64_t serial);

#endif
