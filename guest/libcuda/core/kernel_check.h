/* Kernel checks, enabled by PEGASUS_SOFT_CHECK. */
#ifndef PEGASUS_CORE_KERNEL_CHECK_H
#define PEGASUS_CORE_KERNEL_CHECK_H

#include <stdbool.h>

/* Called by the first API calls: starts the checks that the variable names. */
void check_begin(void);
/* Reports whether the accelerator checks accesses against the bounds of allocations. */
bool check_bounds(void);

#endif
