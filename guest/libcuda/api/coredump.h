/*
 * Settings of GPU core dumps (cuCoredumpSetAttribute). The library stores and returns them, per context and as defaults
 * for new contexts, but writes no dump: the format belongs to NVIDIA's debugger.
 */
#ifndef PEGASUS_API_COREDUMP_H
#define PEGASUS_API_COREDUMP_H

#include <stdint.h>

#include "object/object.h"

/* Registers a new context with its flags; the context starts with the global settings. */
void coredump_context_begins(uint64_t serial, uint32_t flags);
/* Drops the settings of a context that has been destroyed. */
void coredump_context_gone(uint64_t serial);

#endif
