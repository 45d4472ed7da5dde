/* Finding the worker: the rendezvous over PEGASUS_SOCKET, and mapping the segment. */
#ifndef PEGASUS_LINK_H
#define PEGASUS_LINK_H

#include "process.h"

/* Fills process; on failure nothing is left behind. Called with the start lock held. */
CUresult link_open(void);

#endif
