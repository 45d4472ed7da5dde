/* A program with thousands of fat binaries: all are registered, few are used. Its argument is how many. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static const char big_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 8 .b8 big[1048576];\n"
	".visible .entry nothing()\n{\n	ret;\n}\n";

enum { CUBIN = 2, PTX = 1, LTO = 8 };

/* One entry; padded text. */
static struct fat {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes;
	struct {
		uint16_t kind, version;
		uint32_t header;
		uint64_t payload;
		uint32_t compressed, unknown;
		uint16_t minor, major;
		uint32_t sm, name, name_bytes;
		uint64_t flags, zero, plain;
	} entry;
	char text[512];
} fat = {
	.magic = 0xba55ed50, .version = 1, .header = 16, .bytes = sizeof fat.entry + sizeof fat.text,
	.entry = {.kind = PTX, .version = 0x101, .header = 64, .payload = sizeof fat.text, .sm = 50},
};

static size_t free_bytes(void)
{
	size_t left, total;
	CHECK(cuMemGetInfo(&left, &total));
	return left;
}

/* Unloaded memory is free once the host has processed the unload. */
static void expect_free(size_t want)
{
	for (int i = 0; i < 1000 && free_bytes() != want; i++)
		usleep(10000);
	CLAIM(free_bytes() == want);
}

/* As many modules as a program may have; their memory is allocated on first use. */
static void many(int count)
{
	CUmodule *all = calloc((size_t)count, sizeof *all);
	CUfunction f;
	CUdeviceptr at;
	size_t bytes, before = free_bytes();
	for (int i = 0; i < count; i++)
		CHECK(cuModuleLoadFatBinary(&all[i], &fat));
	memset(fat.text, 0, 8); /* the program may reuse its memory */
	CLAIM(free_bytes() == before);
	CHECK(cuModuleGetFunction(&f, all[count / 2], "nothing"));
	CLAIM(free_bytes() + (1 << 20) <= before);
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK(cuModuleGetGlobal(&at, &bytes, all[count - 1], "big"));
	CLAIM(bytes == 1 << 20 && free_bytes() + (2 << 20) <= before);
	CHECK(cuMemsetD8(at, 1, bytes));
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < count; i++)
		CHECK(cuModuleUnload(all[i]));
	CHECK(cuCtxSynchronize());
	expect_free(before);
	CLAIM(cuModuleGetFunction(&f, all[0], "nothing") == CUDA_ERROR_INVALID_HANDLE);
	free(all);
}

/* Errors in PTX text are reported at the first use, and again. */
static void wrong(void)
{
	CUmodule m;
	CUfunction f;
	strcpy(fat.text, ".version 6.0\n.target sm_50\nnonsense\n");
	CHECK(cuModuleLoadFatBinary(&m, &fat));
	for (int i = 0; i < 2; i++)
		EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleGetFunction(&f, m, "nothing"));
	CHECK(cuModuleUnload(m));
	strcpy(fat.text, big_ptx);
	CHECK(cuModuleLoadFatBinary(&m, &fat)); /* its context is destroyed before the module is used */
}

/* Machine code alone: the log gives the compiler options to use. */
static void machine_code(void)
{
	CUmodule m;
	char log[400] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)sizeof log};
	fat.entry.kind = CUBIN;
	fat.entry.sm = 75;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadFatBinary(&m, &fat));
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx(&m, &fat, 2, options, values));
	CLAIM(strstr(log, "machine code for sm_75") && strstr(log, "compile with -gencode arch=compute_"));
	fat.entry.kind = LTO;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx(&m, &fat, 2, options, values));
	CLAIM(strstr(log, "LTO-IR for sm_75"));
}

int main(int argc, char **argv)
{
	CUcontext c;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&c, 0, 0));
	strcpy(fat.text, big_ptx);
	many(argc > 1 ? atoi(argv[1]) : 10);
	wrong();
	CHECK(cuCtxDestroy(c));
	CHECK(cuCtxCreate(&c, 0, 0));
	machine_code();
	return 0;
}
