/* Kernel checks, enabled by PEGASUS_SOFT_CHECK. */
#ifndef PEGASUS_CHECK_H
#define PEGASUS_CHECK_H

/* Called by the first API calls: starts the checks that the variable names. */
void check_begin(void);

#endif
