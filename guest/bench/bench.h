/*
 * The frame of the benchmark programs: arguments, context, timed loop, report.
 *
 * A program fills in a struct workload, and its main is one call of bench_main. Failures end the process with a
 * message: exit status 1 for a CUDA error, 2 for invalid arguments, 3 for a wrong result.
 */
#ifndef BENCH_H
#define BENCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/*
 * luggage is extra data that is copied to the device before each round and back after it (--copy-mb). The workload does
 * not use it; it only takes time.
 */
struct luggage {
	size_t bytes;
	void *there, *back; /* pinned */
	CUdeviceptr device;
};

/* bench is the state of a running program. */
struct bench {
	const struct workload *workload;
	struct options options;
	CUdevice device;
	CUmodule module;
	CUstream stream;
	struct luggage luggage;
	double work; /* units of work in one round; prepare sets it */
};

/* workload is the part that differs between the programs. Its functions are called in this order, launch many times. */
struct workload {
	const char *name;
	const char *about;
	const char *unit;       /* what throughput counts, such as "elements" */
	const char *size_means; /* what --size counts */
	const char *ptx;
	size_t size, least, most; /* --size: default and bounds */
	bool timed;               /* takes --kernel-ms and --steps */

	void (*prepare)(struct bench *b); /* allocates, and copies inputs to the device */
	void (*launch)(struct bench *b);  /* queues one round on b->stream */
	bool (*check)(struct bench *b);   /* reports whether the last round's result is right */
	void (*details)(struct bench *b); /* reports more, by report_number; may be NULL */
	void (*release)(struct bench *b); /* frees what prepare allocated */
};

int bench_main(int argc, char **argv, const struct workload *w);

/* CHECK ends the process unless a driver call succeeds. */
#define CHECK(call)                                                            \
	do {                                                                   \
		CUresult check_result = (call);                                \
		if (check_result != CUDA_SUCCESS)                              \
			bench_fail(#call, check_result);                       \
	} while (0)

_Noreturn void bench_fail(const char *call, CUresult result);

CUfunction bench_function(struct bench *b, const char *name);

/* A launch in one dimension of blocks and threads, without dynamic shared memory. */
void bench_launch(struct bench *b, CUfunction f, unsigned blocks, unsigned threads, void **args);

/* Allocates device memory and copies bytes to it from from, unless that is NULL. */
CUdeviceptr bench_upload(const void *from, size_t bytes);

/* Host memory with a copy of device memory; the caller frees it. */
void *bench_download(CUdeviceptr from, size_t bytes);

/* Host memory, zeroed; never NULL. */
void *bench_allocate(size_t count, size_t bytes);

/* The number of blocks that cover n elements, no more than most. */
unsigned bench_blocks(size_t n, unsigned threads, unsigned most);

/* Pseudo-random inputs, the same in every run. */
uint32_t bench_random(uint32_t *state);
void bench_fill(float *to, size_t n, uint32_t seed, float low, float high);

/* Reports whether the two values are equal except for rounding; prints a difference to stderr. */
bool bench_close(const char *what, size_t at, double got, double want, double tolerance);

/* Nanoseconds of a clock that only goes forward. */
int64_t bench_now(void);

/* EMBED_PTX makes the text of kernels/zz_NAME.ptx the string ptx_NAME. */
#define EMBED_PTX(name)                                                        \
	__asm__(".pushsection .rodata\n"                                       \
		".local ptx_" #name "\n"                                       \
		".type ptx_" #name ", @object\n"                               \
		"ptx_" #name ":\n"                                             \
		".incbin \"zz_" #name ".ptx\"\n"                               \
		".byte 0\n"                                                    \
		".size ptx_" #name ", . - ptx_" #name "\n"                     \
		".popsection\n");                                              \
	extern const char ptx_##name[]

#endif
