/* The arguments that all benchmark programs take. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct workload;

struct options {
	size_t size;
	int64_t iterations; /* rounds, 0: until the time is up */
	double seconds;     /* how long, 0: until the rounds are done */
	int queue;          /* rounds kept in flight; 0: each is waited for */
	int warmup;         /* rounds before the clock starts */
	int device;
	double kernel_ms;   /* timed workloads: how long a kernel shall take */
	uint32_t steps;     /* timed workloads: steps of a kernel, 0: find out */
	double pause_ms;    /* how long it sleeps after each round */
	uint32_t cpu_steps; /* what it computes on the processor before each round */
	double copy_mb;     /* what goes to the device before each round, and back after it */
	bool json, quiet, check;
};

/* Reads the arguments; explains and exits if they are wrong or ask for help. */
struct options options_parse(int argc, char **argv, const struct workload *w);

#endif
