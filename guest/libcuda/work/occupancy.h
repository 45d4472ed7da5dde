/* Occupancy: the number of blocks of a function that fit on a multiprocessor, from the device's attributes. */
#ifndef PEGASUS_WORK_OCCUPANCY_H
#define PEGASUS_WORK_OCCUPANCY_H

#include "image/module.h"

enum { WARP = 32, SHARED_UNIT = 256 };

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns the number of resident blocks of threads threads, 0 if not even one fits. */
int64_t occupancy_blocks(const struct function *f, int64_t threads, uint64_t dynamic);

#endif
