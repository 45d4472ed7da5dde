/* Reconnection of a program in a virtual machine to the next agent after its agent has ended. */
#ifndef PEGASUS_CORE_RECONNECT_H
#define PEGASUS_CORE_RECONNECT_H

#include <stdbool.h>

#include "core/process.h"

/* Stores the agent's socket path. Called before any other thread makes calls. */
void reconnect_prepare(const char *path);

/*
 * Connects to the current agent, if one runs, after the socket has hung up. Returns false if the worker is lost. Safe
 * for concurrent calls from any thread; never blocks.
 */
bool reconnect(void);

#endif
