/* Memory lent to other processes of a domain, and borrowed from them: the host shares an allocation in place. */
#ifndef PEGASUS_WORK_IPC_H
#define PEGASUS_WORK_IPC_H

#include "core/zz_wire.h"
#include "object/object.h"

/*
 * Lends the allocation that begins at an address, any number of times: other processes map it by the returned ticket.
 */
CUresult ipc_lend(uint64_t address, struct mem_lend_result *loan);
/* Map and unmap lent memory. The table of ranges does not contain it. */
CUresult ipc_borrow(const struct context *c, const struct mem_lend_result *loan, uint64_t *address);
CUresult ipc_give_back(const struct context *c, uint64_t address);

#endif
