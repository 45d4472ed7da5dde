/* Reconnection of a program in a virtual machine to the next agent after its agent has ended. */
#ifndef PEGASUS_REJOIN_H
#define PEGASUS_REJOIN_H

#include <stdbool.h>

#include "core/process.h"

/* Stores the agent's socket path. Called before any other thread makes calls. */
void rejoin_prepare(const char *path);

/*
 * Connects to the current agent, if one runs, after the socket has hung up. Returns false if the worker is lost. Safe
 * for concurrent calls from any thread; never blocks.
 */
bool rejoin(void);

#endif
