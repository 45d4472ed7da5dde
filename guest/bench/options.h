/* The command-line arguments of all benchmark programs. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct workload;

struct options {
	size_t size;
	int64_t iterations; /* rounds, 0: until the time is over */
	double seconds;     /* duration, 0: until the rounds are done */
	int queue;          /* rounds kept in flight; 0: each is waited for */
	int warmup;         /* rounds before the clock starts */
	int device;
	double kernel_ms;   /* timed workloads: duration of a kernel */
	uint32_t steps;     /* timed workloads: steps of a kernel, 0: calibrate */
	double pause_ms;    /* sleep after each round */
	uint32_t cpu_steps; /* steps computed on the processor before each round */
	double copy_mb;     /* size of the copies to the device before each round, and back after it */
	bool json, quiet, check;
};

/* Parses the arguments; prints the usage and exits if they are invalid or request help. */
struct options options_parse(int argc, char **argv, const struct workload *w);

#endif
