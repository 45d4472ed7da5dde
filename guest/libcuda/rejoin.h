/* A program in a virtual machine whose agent has ended goes on, and finds the next agent. */
#ifndef PEGASUS_REJOIN_H
#define PEGASUS_REJOIN_H

#include <stdbool.h>

#include "process.h"

/* Remembers where the agent listens, and which socket is ours. Called before any other thread makes calls. */
void rejoin_prepare(const char *path);

/*
 * The socket has hung up: goes to the agent that is there now, if there is one. false: the worker has
 * gone. Any thread may call it at any time; nothing waits.
 */
bool rejoin(void);

#endif
