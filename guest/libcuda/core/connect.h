/* Connects to the worker: the rendezvous over PEGASUS_SOCKET, and mapping of the segment. */
#ifndef PEGASUS_LINK_H
#define PEGASUS_LINK_H

#include "core/process.h"

/* Connects and fills process; on failure it releases everything. The caller holds the start lock. */
CUresult link_open(void);

#endif
