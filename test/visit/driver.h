/* The common part of the probes: the driver's functions, looked up at run time, since an older driver lacks some; and lines of JSON
 * for tools/visit. */
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPELLED_(x) #x
#define SPELLED(x) SPELLED_(x)

/* FIND returns the driver's function, looked up once. A missing function counts as a result. */
#define FIND(f)                                                       \
	({                                                            \
		static __typeof__(&f) found_;                         \
		if (!found_)                                          \
			found_ = (__typeof__(&f))find(SPELLED(f));    \
		found_;                                               \
	})
#define CALL(f, ...) (FIND(f) ? FIND(f)(__VA_ARGS__) : (CUresult)CUDA_ERROR_NOT_FOUND)

#define MUST(f, ...)                                                                  \
	do {                                                                          \
		CUresult r_ = CALL(f, __VA_ARGS__);                                   \
		if (r_ != CUDA_SUCCESS) {                                             \
			fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, SPELLED(f), r_); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

static inline void *find(const char *name)
{
	static void *library;
	if (!library && !(library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return dlsym(library, name);
}

static inline int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline void figure(const char *name, double value, const char *unit)
{
	printf("{\"figure\": \"%s\", \"value\": %.9g, \"unit\": \"%s\"}\n", name, value, unit);
	fflush(stdout);
}

static inline void answer(const char *name, long long value)
{
	printf("{\"answer\": \"%s\", \"value\": %lld}\n", name, value);
	fflush(stdout);
}

static inline int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* times prints the p50 and p99 of n times, and sorts the array. */
static inline void times(const char *name, double *t, size_t n, const char *unit)
{
	char full[160];
	if (!n)
		return;
	qsort(t, n, sizeof *t, by_size);
	snprintf(full, sizeof full, "%s, p50", name);
	figure(full, t[n / 2], unit);
	snprintf(full, sizeof full, "%s, p99", name);
	figure(full, t[n * 99 / 100], unit);
}

/* visiting reports whether this run measures a device. Other runs are rehearsals, which are short. */
static inline bool visiting(void)
{
	const char *v = getenv("PEGASUS_VISIT");
	return v && *v == '1';
}

static CUcontext context;
static CUdevice device;

static inline void begin(void)
{
	MUST(cuInit, 0);
	MUST(cuDeviceGet, &device, 0);
	MUST(cuCtxCreate_v2, &context, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST, device);
}

/* spin computes so many steps in each thread, and stores the results; nothing is an empty kernel. */
static const char kernels[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry spin(.param .u64 at, .param .u32 steps)\n{\n"
	"	.reg .u64 %a, %o;\n	.reg .u32 %n, %v, %w;\n	.reg .pred %p;\n"
	"	ld.param.u64 %a, [at];\n	ld.param.u32 %n, [steps];\n	mov.u32 %v, %tid.x;\n	add.u32 %v, %v, 1;\n"
	"again:\n	shl.b32 %w, %v, 13;\n	xor.b32 %v, %v, %w;\n	shr.u32 %w, %v, 17;\n	xor.b32 %v, %v, %w;\n"
	"	shl.b32 %w, %v, 5;\n	xor.b32 %v, %v, %w;\n"
	"	sub.u32 %n, %n, 1;\n	setp.ne.u32 %p, %n, 0;\n	@%p bra again;\n"
	"	mov.u32 %w, %tid.x;\n	mul.wide.u32 %o, %w, 4;\n	add.u64 %a, %a, %o;\n	st.global.u32 [%a], %v;\n	ret;\n}\n"
	".visible .entry nothing()\n{\n	ret;\n}\n";

static inline CUfunction kernel(const char *name)
{
	static CUmodule module;
	CUfunction f;
	if (!module)
		MUST(cuModuleLoadData, &module, kernels);
	MUST(cuModuleGetFunction, &f, module, name);
	return f;
}

static inline CUresult spin(CUfunction f, CUstream s, CUdeviceptr at, unsigned steps)
{
	void *args[] = {&at, &steps};
	return CALL(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, s, args, NULL);
}

static inline CUresult nothing(CUfunction f, CUstream s)
{
	return CALL(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
}

/* steps_of returns the number of steps with which spin takes so many ms. */
static inline unsigned steps_of(CUfunction f, CUdeviceptr at, double ms)
{
	unsigned n = 1000;
	spin(f, NULL, at, 1); /* the first one brings the kernel to the device */
	CALL(cuCtxSynchronize);
	for (;;) {
		int64_t from = now();
		CUresult r = spin(f, NULL, at, n);
		if (r == CUDA_SUCCESS)
			r = CALL(cuCtxSynchronize);
		double took = (double)(now() - from) / 1e6;
		if (r != CUDA_SUCCESS || took > 5 || n > 1u << 30)
			return (unsigned)fmin(fmax(n * ms / took, 1), 4e9);
		n *= 2;
	}
}
