/* Launches in both argument forms, module queries, and rejected launches. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static const char text[] = ".version 7.0\n";

struct block {
	uint8_t a;
	uint32_t b;
	uint16_t c;
	uint32_t d[3];
	uint64_t e;
};

/* Exactly the declared sizes are read: the last value ends at the end of a page. */
static void *at_page_end(const void *value, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(two != MAP_FAILED);
	CLAIM(mprotect(two + page, page, PROT_NONE) == 0);
	return memcpy(two + page - n, value, n);
}

static void check_echo(CUdeviceptr d)
{
	uint8_t got[32];
	uint32_t b, words[3];
	uint16_t c;
	uint64_t e;
	OK(cuMemcpyDtoH(got, d, 32));
	memcpy(&b, got + 4, 4);
	memcpy(&c, got + 8, 2);
	memcpy(words, got + 12, 12);
	memcpy(&e, got + 24, 8);
	CLAIM(got[0] == 7 && b == 0xabcd1234 && c == 0x55aa && words[0] == 1 && words[1] == 2 && words[2] == 3);
	CLAIM(e == 0x1122334455667788);
}

static void forms(CUfunction echo, CUdeviceptr d)
{
	struct block v = {7, 0xabcd1234, 0x55aa, {1, 2, 3}, 0x1122334455667788};
	void *values[] = {
		at_page_end(&d, 8), at_page_end(&v.a, 1), at_page_end(&v.b, 4), at_page_end(&v.c, 2), at_page_end(v.d, 12),
		at_page_end(&v.e, 8),
	};
	OK(cuMemsetD8(d, 0, 64));
	OK(cuLaunchKernel(echo, 1, 1, 1, 32, 1, 1, 0, NULL, values, NULL));
	check_echo(d);

	uint8_t buffer[48] = {0};
	memcpy(buffer, &d, 8);
	buffer[8] = 7;
	memcpy(buffer + 12, &v.b, 4);
	memcpy(buffer + 16, &v.c, 2);
	memcpy(buffer + 20, v.d, 12);
	memcpy(buffer + 32, &v.e, 8);
	size_t size = 40;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	OK(cuMemsetD8(d, 0, 64));
	OK(cuLaunchKernel(echo, 2, 3, 4, 8, 4, 2, 0, NULL, NULL, extra));
	check_echo(d);

	OK(cuMemsetD8(d, 0, 64));
	CUlaunchConfig config = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
	};
	OK(cuLaunchKernelEx(&config, echo, values, NULL));
	check_echo(d);

	size = 39;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, NULL, values, extra));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	void *wrong[] = {(void *)77, buffer, CU_LAUNCH_PARAM_END};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, wrong));
	values[3] = NULL;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, NULL, values, NULL));
}

static void shapes(CUfunction none, CUfunction small)
{
	OK(cuLaunchKernel(none, 2147483647, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuLaunchKernel(none, 1, 65535, 65535, 1024, 1, 1, 48 << 10, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(none, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(none, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(none, 1, 1, 1, 1, 1, 0, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(none, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(none, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, (48 << 10) + 1, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(small, 1, 1, 1, 129, 1, 1, 0, NULL, NULL, NULL));
	OK(cuLaunchKernel(small, 1, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x1234567, NULL, NULL));
	int blocks, grid, threads;
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, none, 256, 0));
	CLAIM(blocks == 4);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &threads, none, NULL, 0, 0));
	CLAIM(grid == 4 && threads == 1024);
	OK(cuLaunchCooperativeKernel(none, 4, 1, 1, 1024, 1, 1, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel(none, 5, 1, 1, 1024, 1, 1, 0, NULL, NULL));
}

static void queries(CUmodule m)
{
	CUfunction f, same, all[8];
	CUdeviceptr p;
	size_t n, offset, size;
	int value;
	unsigned int count;
	const char *name;
	uint32_t word = 0x01020304, got = 0;
	OK(cuModuleGetFunction(&f, m, "echo"));
	OK(cuModuleGetFunction(&same, m, "echo"));
	CLAIM(f == same);
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, "ech"));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&f, (CUmodule)f, "echo"));
	OK(cuModuleGetFunctionCount(&count, m));
	CLAIM(count == 4);
	OK(cuModuleEnumerateFunctions(all, 8, m));
	CLAIM(all[0] == same);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetName(&name, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuKernelGetName(&name, NULL));
	OK(cuFuncGetName(&name, all[3]));
	CLAIM(strcmp(name, "small") == 0);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, all[3]));
	CLAIM(value == 1024);
	OK(cuFuncGetParamInfo(same, 4, &offset, &size));
	CLAIM(offset == 20 && size == 12);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(same, 6, &offset, &size));
	OK(cuModuleGetGlobal(&p, &n, m, "four"));
	CLAIM(n == 4);
	OK(cuMemcpyHtoD(p, &word, 4));
	OK(cuMemcpyDtoH(&got, p, 4));
	CLAIM(got == word);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(p, &word, 5));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&p, &n, m, "five"));
}

/* Settings of functions and kernels are independent of each other. */
static void settings(CUmodule m, const void *image)
{
	static const CUfunction_attribute all[] = {
		CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
		CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
	};
	static const int before[] = {-1, 0, 0, 48 << 10}, after[] = {50, 1, 2, 1024};
	CUfunction f, same;
	CUlibrary l;
	CUkernel k;
	int value;
	OK(cuModuleGetFunction(&f, m, "none"));
	OK(cuLibraryLoadData(&l, image, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&k, l, "none"));
	OK(cuKernelGetFunction(&same, k));
	for (int i = 0; i < 4; i++) {
		OK(cuFuncGetAttribute(&value, all[i], f));
		CLAIM(value == before[i]);
		OK(cuKernelGetAttribute(&value, all[i], k, 0));
		CLAIM(value == before[i]);
		OK(cuFuncSetAttribute(f, all[i], after[i]));
		OK(cuKernelSetAttribute(all[i], after[i], k, 0));
	}
	for (int i = 0; i < 4; i++) {
		OK(cuFuncGetAttribute(&value, all[i], f));
		CLAIM(value == after[i]);
		OK(cuFuncGetAttribute(&value, all[i], same));
		CLAIM(value == after[i]);
		OK(cuKernelGetAttribute(&value, all[i], k, 0));
		CLAIM(value == after[i]);
		OK(cuFuncSetAttribute(f, all[i], before[i]));
	}
	OK(cuLibraryUnload(l));
}

static void images(void)
{
	CUmodule m;
	char log[100] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
	void *values[] = {log, (void *)(uintptr_t)sizeof log, NULL};
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, "some other text", 3, options, values));
	CLAIM(strcmp(log, "line 1: not the test's text") == 0 && (uintptr_t)values[1] == strlen(log) + 1);
	strcpy(log, "what was there before");
	values[1] = (void *)(uintptr_t)sizeof log;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadDataEx(&m, "", 3, options, values));
	CLAIM(strstr(log, "damaged") && (uintptr_t)values[1] == strlen(log) + 1);
	static const struct {
		uint32_t magic;
		uint16_t version, headerBytes;
		uint64_t bytes;
	} nothing = {.magic = 0xba55ed50u, .version = 1, .headerBytes = 16};
	values[1] = (void *)(uintptr_t)sizeof log;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx(&m, &nothing, 3, options, values));
	CLAIM(strstr(log, "no PTX") && (uintptr_t)values[1] == strlen(log) + 1);
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, ""));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "\1\2\3\4"));
	EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent.ptx"));
	options[0] = (CUjit_option)999;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&m, text, 1, options, values));
}

int main(void)
{
	CUdevice device;
	CUcontext context, second;
	CUmodule m;
	CUstream stream;
	CUevent event;
	CUfunction echo, none, small, fault;
	CUdeviceptr d;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuModuleLoadData(&m, text));
	OK(cuModuleGetFunction(&echo, m, "echo"));
	OK(cuModuleGetFunction(&none, m, "none"));
	OK(cuModuleGetFunction(&small, m, "small"));
	OK(cuModuleGetFunction(&fault, m, "fault"));
	OK(cuMemAlloc(&d, 64));
	forms(echo, d);
	shapes(none, small);
	queries(m);
	settings(m, text);
	images();

	OK(cuCtxCreate(&second, 0, device));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuCtxSynchronize());
	OK(cuCtxPopCurrent(NULL));

	/* A fault makes its context fail, and no other. */
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CUresult r = cuCtxSynchronize();
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_ILLEGAL_ADDRESS); /* this test's host may answer earlier */
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&d, 64));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	for (int i = 0; i < 2; i++) {
		EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamDestroy(stream));
		EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
		EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventDestroy(event));
	}
	OK(cuCtxPushCurrent(second));
	OK(cuCtxSynchronize());
	OK(cuCtxPopCurrent(NULL));
	OK(cuCtxDestroy(context));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&(int){0}, CU_FUNC_ATTRIBUTE_NUM_REGS, echo));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuModuleLoadData(&m, text));
	OK(cuModuleUnload(m));
	puts("launches: fine");
	return 0;
}
