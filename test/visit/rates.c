/* Measures a driver's rates as a program observes them. The measurements are the same with and without Pegasus. */
#define _GNU_SOURCE
#include "driver.h"

#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static CUstream s;

/* A measurement's bounds: so many repetitions, and so many ns. */
static int often(void) { return visiting() ? 4000 : 200; }
static double long_enough(void) { return visiting() ? 1e9 : 1e8; }

static double *room;

static void beginning(int64_t from)
{
	figure("cuInit, and a context", (double)(now() - from) / 1e6, "ms");
	from = now();
	CUfunction f = kernel("nothing");
	nothing(f, NULL);
	MUST(cuCtxSynchronize);
	figure("a module, and its first kernel", (double)(now() - from) / 1e6, "ms");
}

static void launches(void)
{
	CUfunction f = kernel("nothing");
	int n = often();
	for (int i = 0; i < n; i++) {
		int64_t from = now();
		MUST(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
		MUST(cuStreamSynchronize, s);
		room[i] = (double)(now() - from) / 1e3;
	}
	times("launch and wait", room, (size_t)n, "us");
	for (int i = 0; i < n; i++) {
		int64_t from = now();
		nothing(f, s);
		room[i] = (double)(now() - from) / 1e3;
		if (i % 500 == 499)
			MUST(cuStreamSynchronize, s);
	}
	MUST(cuStreamSynchronize, s);
	times("launch", room, (size_t)n, "us");
	int64_t from = now();
	for (int i = 0; i < n; i++)
		nothing(f, s);
	MUST(cuStreamSynchronize, s);
	figure("launches in a row", n / ((double)(now() - from) / 1e9), "1/s");
	n /= 4;
	for (int i = 0; i < n; i++) {
		from = now();
		nothing(f, s);
		while (CALL(cuStreamQuery, s) == CUDA_ERROR_NOT_READY)
			;
		room[i] = (double)(now() - from) / 1e3;
	}
	times("launch and ask until it has ended", room, (size_t)n, "us");
	CUevent e;
	MUST(cuEventCreate, &e, 0);
	for (int i = 0; i < n; i++) {
		from = now();
		nothing(f, s);
		MUST(cuEventRecord, e, s);
		MUST(cuEventSynchronize, e);
		room[i] = (double)(now() - from) / 1e3;
	}
	times("launch, record, and wait for the event", room, (size_t)n, "us");
	CUcontext current;
	from = now();
	for (int i = 0; i < n; i++)
		CALL(cuCtxGetCurrent, &current);
	figure("cuCtxGetCurrent", (double)(now() - from) / n, "ns");
}

static void memory(void)
{
	int n = often() / 10;
	for (int large = 0; large < 2; large++) {
		size_t bytes = large ? 64 * MIB : 64 * KIB;
		double *freed = room + n;
		for (int i = 0; i < n; i++) {
			CUdeviceptr at;
			int64_t from = now();
			MUST(cuMemAlloc_v2, &at, bytes);
			int64_t then = now();
			MUST(cuMemFree_v2, at);
			room[i] = (double)(then - from) / 1e3;
			freed[i] = (double)(now() - then) / 1e3;
		}
		times(large ? "cuMemAlloc, 64 MiB" : "cuMemAlloc, 64 KiB", room, (size_t)n, "us");
		times(large ? "cuMemFree, 64 MiB" : "cuMemFree, 64 KiB", freed, (size_t)n, "us");
	}
}

/* Prints the median rate of copies of a size. */
static void copy(const char *name, size_t bytes, void *host, CUdeviceptr device, bool in)
{
	size_t n = 0;
	for (int64_t from = now(); n < 2000 && (n < 5 || (double)(now() - from) < long_enough() / 4); n++) {
		int64_t begin = now();
		if (in)
			MUST(cuMemcpyHtoDAsync_v2, device, host, bytes, s);
		else
			MUST(cuMemcpyDtoHAsync_v2, host, device, bytes, s);
		MUST(cuStreamSynchronize, s);
		room[n] = (double)(now() - begin);
	}
	qsort(room, n, sizeof *room, by_size);
	if (bytes < MIB)
		figure(name, room[n / 2] / 1e3, "us");
	else
		figure(name, (double)bytes / room[n / 2], "GB/s");
}

static void copies(void)
{
	size_t sizes[] = {4 * KIB, 64 * KIB, MIB, 16 * MIB, visiting() ? 128 * MIB : 32 * MIB}, most = sizes[4];
	void *pinned, *pageable = malloc(most);
	CUdeviceptr device;
	MUST(cuMemAlloc_v2, &device, most);
	CUresult r = CALL(cuMemHostAlloc, &pinned, most, 0);
	if (r != CUDA_SUCCESS) {
		answer("pin memory", r);
		pinned = NULL;
	}
	memset(pageable, 1, most);
	for (int i = 0; i < 5; i++)
		for (int p = 0; p < 2; p++)
			for (int in = 0; in < 2 && (!p || pinned); in++) {
				char name[100];
				snprintf(name, sizeof name, "copy %zu KiB %s, %s", sizes[i] / KIB, in ? "in" : "out", p ? "pinned" : "pageable");
				copy(name, sizes[i], p ? pinned : pageable, device, in);
			}
}

int main(void)
{
	room = calloc(8000, sizeof *room);
	int64_t from = now();
	begin();
	beginning(from);
	MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	launches();
	memory();
	copies();
	MUST(cuCtxDestroy_v2, context);
	return 0;
}
