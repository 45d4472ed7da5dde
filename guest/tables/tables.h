/* The optional component's parts: see tables.c. */
#ifndef PEGASUS_TABLES_H
#define PEGASUS_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"

typedef void (*storage_ends)(CUcontext context, void *key, void *value);

/* Values that libraries keep by context and key: context NULL or -1 is the current one. */
CUresult storage_put(CUcontext context, void *key, void *value, storage_ends ends);
CUresult storage_delete(CUcontext context, void *key);
CUresult storage_get(void **value, CUcontext context, void *key);

/* The answer to the runtime's integrity check of the driver, and whether this build can compute it. */
bool integrity_is_known(void);
CUresult integrity_check(uint32_t version, uint64_t seconds, uint8_t answer[16]);

/* Tables with addresses that enter the answer. */
extern const void *const interface_table[], *const integrity_table[];

#endif
