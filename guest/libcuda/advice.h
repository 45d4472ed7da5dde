/* What a program has advised of its managed memory. */
#ifndef PEGASUS_ADVICE_H
#define PEGASUS_ADVICE_H

#include <stdint.h>

/* An allocation is free: whoever gets its memory next has advised nothing. */
void advice_forget(uint64_t allocation);

#endif
