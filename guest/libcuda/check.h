/* Checks of the program's kernels, if PEGASUS_SOFT_CHECK names any. */
#ifndef PEGASUS_CHECK_H
#define PEGASUS_CHECK_H

/* For the first calls: begins the checks that are named. */
void check_begin(void);

#endif
