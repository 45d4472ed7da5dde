/* Kernel checks, enabled by PEGASUS_SOFT_CHECK. */
#ifndef PEGASUS_CORE_KERNEL_CHECK_H
#define PEGASUS_CORE_KERNEL_CHECK_H

/* Called by the first API calls: starts the checks that the variable names. */
void check_begin(void);

#endif
