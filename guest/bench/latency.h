/* Counts of durations, for percentiles over any number of samples. A bucket's
 * width is at most 1/64 of its durations, so that a percentile is off by less
 * than 1 %. */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>

enum { LATENCY_BITS = 6, LATENCY_FRACTIONS = 1 << LATENCY_BITS, LATENCY_BUCKETS = 64 * LATENCY_FRACTIONS };

struct latency {
	uint64_t count;
	uint64_t buckets[LATENCY_BUCKETS];
};

void latency_add(struct latency *l, int64_t nanoseconds);

/* Returns the duration that a share (0 to 1) of the samples didn't exceed; 0 without samples. */
int64_t latency_percentile(const struct latency *l, double share);

#endif
