#include "latency.h"

/* Durations below LATENCY_FRACTIONS have a bucket each; above, each power of two
 * is divided into as many. */
static unsigned bucket(uint64_t ns)
{
	if (ns < LATENCY_FRACTIONS)
		return (unsigned)ns;
	unsigned power = 63u - (unsigned)__builtin_clzll(ns);
	unsigned fraction = (unsigned)(ns >> (power - LATENCY_BITS)) & (LATENCY_FRACTIONS - 1);
	return (power - LATENCY_BITS + 1) * LATENCY_FRACTIONS + fraction;
}

/* The middle of a bucket. */
static int64_t middle(unsigned bucket)
{
	if (bucket < LATENCY_FRACTIONS)
		return bucket;
	unsigned power = bucket / LATENCY_FRACTIONS + LATENCY_BITS - 1;
	uint64_t width = 1ull << (power - LATENCY_BITS);
	return (int64_t)((LATENCY_FRACTIONS + bucket % LATENCY_FRACTIONS) * width + width / 2);
}

void latency_add(struct latency *l, int64_t nanoseconds)
{
	l->buckets[bucket(nanoseconds > 0 ? (uint64_t)nanoseconds : 0)]++;
	l->count++;
}

int64_t latency_percentile(const struct latency *l, double share)
{
	uint64_t seen = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		seen += l->buckets[i];
		if (seen > 0 && (double)seen >= share * (double)l->count)
			return middle(i);
	}
	return 0;
}
