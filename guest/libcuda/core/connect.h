/* Connects the process to its worker: the rendezvous over PEGASUS_SOCKET, and the mapping of the segment. */
#ifndef PEGASUS_CORE_CONNECT_H
#define PEGASUS_CORE_CONNECT_H

#include "core/process.h"

/* Connects the process; idempotent. */
CUresult process_start(void);

/* Called around fork: a connection attempt of another thread is not cut in two, and the child is not connected. */
void connect_before_fork(void);
void connect_after_fork(bool child);

#endif
