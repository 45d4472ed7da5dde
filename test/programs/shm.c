/*
 * Shares device memory with other processes of its domain.
 *
 *	shm make KEY BYTES VALUE     makes a segment, which is zero, and fills it; never detaches
 *	shm use KEY BYTES WAS VALUE  finds it full of WAS and fills it; detaches
 *	shm absent KEY               finds none
 *	shm hold KEY WAS             keeps it attached until its input ends, and finds it full of WAS then
 *	shm spin KEY VALUE           fills it, and launches a kernel that doesn't end
 *	shm fail KEY VALUE           fills it, and then a kernel fails
 *	shm refused                  fails: segments are not supported
 *	shm count KEY TIMES FILE     increments it TIMES times, attaching it each time; FILE, which it locks, has the total
 *	shm remove KEY               removes it
 *	shm full KEY BYTES           fails to make one of BYTES
 *	shm wrong MOST               makes all kinds of invalid calls; MOST segments fit
 *	shm gdev                     uses the calls as Gdev's programs do: keys from 0 on, and GDEV_IPC_RMID
 */
#include "check.h"

#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <gdev_api.h>

static CUresult (*shm_get)(int *, int, size_t, unsigned int);

static void expect_all(CUdeviceptr at, size_t bytes, unsigned want)
{
	unsigned *got = malloc(bytes);
	CHECK(cuMemcpyDtoH(got, at, bytes));
	for (size_t i = 0; i < bytes / 4; i++) {
		if (got[i] != want) {
			fprintf(stderr, "word %zu is %u, want %u\n", i, got[i], want);
			exit(1);
		}
	}
	free(got);
}

/* Fills through one address and checks through another; a kernel writes the last word. */
static void fill(CUmodule module, int id, CUdeviceptr at, size_t bytes, unsigned value)
{
	CUdeviceptr again, base;
	CUfunction step;
	size_t size;
	CHECK(cuShmAt(&again, id, 0));
	CLAIM(again != at);
	CHECK(cuMemsetD32(at, value, bytes / 4));
	CHECK(cuMemsetD32(again + bytes - 4, 1, 1));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	launch_step(step, NULL, again + bytes - 4, 0, value);
	CHECK(cuCtxSynchronize());
	expect_all(at, bytes, value);
	CHECK(cuMemGetAddressRange(&base, &size, again + 4));
	CLAIM(base == again && size >= bytes);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(again));
	CHECK(cuShmDt(again));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmDt(again));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(again, 0, 1));
}

/*
 * Other processes count, too, and are killed meanwhile: their kernels may come late. But every completed count stays.
 */
static void count(CUmodule module, int id, long times, const char *path)
{
	CUfunction step;
	FILE *file = fopen(path, "r+");
	CLAIM(file != NULL);
	CHECK(cuModuleGetFunction(&step, module, "step"));
	while (times-- > 0) {
		CUdeviceptr at, again = 0;
		unsigned there, known = 0;
		CHECK(cuShmAt(&at, id, 0));
		if (times % 3 == 0)
			CHECK(cuShmAt(&again, id, 0));
		CLAIM(flock(fileno(file), LOCK_EX) == 0);
		CLAIM(pread(fileno(file), &known, sizeof known, 0) >= 0);
		CHECK(cuMemcpyDtoH(&there, again ? again : at, sizeof there));
		if (there < known || there > known + 8) {
			fprintf(stderr, "%u were counted, and the segment says %u\n", known, there);
			exit(1);
		}
		launch_step(step, NULL, at, 1, 1);
		CHECK(cuCtxSynchronize());
		there++;
		CLAIM(pwrite(fileno(file), &there, sizeof there, 0) == sizeof there);
		CLAIM(flock(fileno(file), LOCK_UN) == 0);
		if (again)
			CHECK(cuShmDt(again));
		CHECK(cuShmDt(at));
	}
	fclose(file);
}

static void wrong(int most)
{
	CUdeviceptr at, plain;
	CUshminfo info;
	int id, other;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmGet(NULL, 1, 4096, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmGet(&id, 1, 4096, 1));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuShmGet(&id, 1, 0, 0));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuShmGet(&id, CU_SHM_PRIVATE, 0, 0));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuShmGet(&id, 1, (size_t)1 << 50, 0));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuShmGet(&id, 1, (size_t)-1, 0));
	for (int i = -70; i < 70; i++) {
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuShmAt(&at, i, 0));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuShmCtl(i, CU_SHM_REMOVE, NULL));
	}
	EXPECT(CUDA_ERROR_NOT_FOUND, cuShmGet(&id, 0, 0, 0));
	CHECK(cuShmGet(&id, CU_SHM_PRIVATE, 100, 0));
	CHECK(cuShmGet(&other, CU_SHM_PRIVATE, 100, 0));
	CLAIM(id != other);
	CHECK(cuShmCtl(other, CU_SHM_REMOVE, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuShmAt(&at, other, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmAt(NULL, id, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmAt(&at, id, 7));
	for (int command = -1; command < 70; command++)
		if (command != CU_SHM_REMOVE)
			EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmCtl(id, command, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmCtl(id, GDEV_IPC_SET, &info));
	CHECK(cuMemAlloc(&plain, 100));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmDt(plain));
	CHECK(cuShmAt(&at, id, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmDt(at + 4));
	CHECK(cuShmCtl(id, CU_SHM_STAT, &info));
	CLAIM(info.bytes >= 100 && info.attached == 1 && info.key == CU_SHM_PRIVATE);
	CHECK(cuShmCtl(id, CU_SHM_REMOVE, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuShmCtl(id, CU_SHM_STAT, &info));
	CHECK(cuMemsetD32(at, 5, 25)); /* lives until it is detached */
	for (int i = 0; i < most - 1; i++)
		CHECK(cuShmGet(&other, 100 + i, 4096, 0));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuShmGet(&other, 99, 4096, 0));
	CHECK(cuShmDt(at));
	CHECK(cuShmGet(&other, 99, 4096, 0));
	CLAIM(other != id);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmGet(&other, 99, 4097, 0));
	for (int i = -1; i < most - 1; i++) {
		CHECK(cuShmGet(&other, 100 + i, 0, 0));
		CHECK(cuShmCtl(other, CU_SHM_REMOVE, NULL));
	}
}

/* A tree of sums as in Gdev's dataflow benchmarks: each node has a context and a segment of its own, by the next key. */
static void gdev(void)
{
	enum { LEAVES = 256, WORDS = 64 }; /* 511 segments */
	unsigned words[WORDS];
	int keys[2 * LEAVES], next = 0, removed, id, all = 0;
	CUdeviceptr at, from;
	for (int i = 0; i < WORDS; i++)
		words[i] = 1;
	for (; next < LEAVES; next++) {
		keys[next] = next;
		CHECK(cuShmGet(&id, next, sizeof words, 0));
		CHECK(cuShmAt(&at, id, 0));
		CHECK(cuMemcpyHtoD(at, words, sizeof words));
		CHECK(cuShmDt(at));
	}
	for (int a = 0; next < 2 * LEAVES - 1; a += 2, next++) {
		keys[next] = next;
		CHECK(cuShmGet(&id, next, sizeof words, 0));
		CHECK(cuShmAt(&at, id, 0));
		memset(words, 0, sizeof words);
		for (int i = a; i < a + 2; i++) {
			unsigned of[WORDS];
			CHECK(cuShmGet(&removed, keys[i], sizeof words, 0));
			CHECK(cuShmAt(&from, removed, 0));
			CHECK(cuMemcpyDtoH(of, from, sizeof of));
			CHECK(cuShmDt(from));
			for (int k = 0; k < WORDS; k++)
				words[k] += of[k];
		}
		CHECK(cuMemcpyHtoD(at, words, sizeof words));
		CHECK(cuShmDt(at));
	}
	CLAIM(words[0] == LEAVES && words[WORDS - 1] == LEAVES);
	for (int i = 0; i < next; i++) {
		CHECK(cuShmGet(&id, keys[i], sizeof words, 0));
		CHECK(cuShmCtl(id, GDEV_IPC_RMID, i % 2 ? &all : NULL));
	}
	EXPECT(CUDA_ERROR_NOT_FOUND, cuShmGet(&id, 0, 0, 0));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int key = argc > 2 ? atoi(argv[2]) : 0, id;
	unsigned long number[3] = {0};
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUdeviceptr at;
	CUshminfo info;

	for (int i = 0; i < 3 && i + 3 < argc; i++)
		number[i] = strtoul(argv[i + 3], NULL, 10);
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuShmGet(&id, 1, 4096, 0));
	CHECK(cuInit(0));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuShmGet(&id, 1, 4096, 0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, step_ptx));
	CHECK(cuGetProcAddress("cuShmGet", (void **)&shm_get, 12040, 0, NULL));
	CLAIM(shm_get == cuShmGet);
	if (strcmp(what, "make") == 0) {
		CHECK(cuShmGet(&id, key, number[0], 0));
		CHECK(cuShmAt(&at, id, 0));
		expect_all(at, number[0], 0);
		fill(module, id, at, number[0], (unsigned)number[1]);
	} else if (strcmp(what, "use") == 0) {
		CHECK(cuShmGet(&id, key, number[0], 0));
		CHECK(cuShmAt(&at, id, 0));
		expect_all(at, number[0], (unsigned)number[1]);
		fill(module, id, at, number[0], (unsigned)number[2]);
		CHECK(cuShmDt(at));
	} else if (strcmp(what, "absent") == 0) {
		EXPECT(CUDA_ERROR_NOT_FOUND, cuShmGet(&id, key, 0, 0));
		for (int i = 0; i < 200; i++)
			EXPECT(CUDA_ERROR_INVALID_HANDLE, cuShmAt(&at, i, 0));
	} else if (strcmp(what, "hold") == 0) {
		CHECK(cuShmGet(&id, key, 0, 0));
		CHECK(cuShmAt(&at, id, 0));
		CHECK(cuShmCtl(id, CU_SHM_STAT, &info));
		printf("holds\n");
		fflush(stdout);
		while (getchar() != EOF)
			;
		expect_all(at, info.bytes, (unsigned)number[0]);
	} else if (strcmp(what, "spin") == 0) {
		CUfunction spin;
		void *steps[] = {&(unsigned){0}};
		CHECK(cuShmGet(&id, key, 0, 0));
		CHECK(cuShmAt(&at, id, 0));
		CHECK(cuShmCtl(id, CU_SHM_STAT, &info));
		CHECK(cuMemsetD32(at, (unsigned)number[0], info.bytes / 4));
		CHECK(cuCtxSynchronize());
		CHECK(cuModuleGetFunction(&spin, module, "spin"));
		CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, steps, NULL));
		EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
		printf("holds\n");
		fflush(stdout);
		pause();
	} else if (strcmp(what, "fail") == 0) {
		CUfunction step;
		CHECK(cuShmGet(&id, key, 0, 0));
		CHECK(cuShmAt(&at, id, 0));
		CHECK(cuShmCtl(id, CU_SHM_STAT, &info));
		CHECK(cuMemsetD32(at, (unsigned)number[0], info.bytes / 4));
		CHECK(cuCtxSynchronize());
		CHECK(cuModuleGetFunction(&step, module, "step"));
		launch_step(step, NULL, 64, 1, 1);
		EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	} else if (strcmp(what, "refused") == 0) {
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuShmGet(&id, 1, 4096, 0));
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuShmAt(&at, 1, 0));
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuShmCtl(1, CU_SHM_REMOVE, NULL));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuShmDt(4096));
	} else if (strcmp(what, "count") == 0) {
		CHECK(cuShmGet(&id, key, 0, 0));
		count(module, id, (long)number[0], argv[4]);
	} else if (strcmp(what, "remove") == 0) {
		CHECK(cuShmGet(&id, key, 0, 0));
		CHECK(cuShmCtl(id, CU_SHM_REMOVE, NULL));
	} else if (strcmp(what, "full") == 0) {
		EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuShmGet(&id, key, number[0], 0));
	} else if (strcmp(what, "wrong") == 0) {
		wrong(key);
	} else if (strcmp(what, "gdev") == 0) {
		gdev();
	} else {
		return 2;
	}
	return 0;
}
