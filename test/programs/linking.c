/* The linker of the driver API, one corner at a time: linking NAME. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define HEAD ".version 6.0\n.target sm_50\n.address_size 64\n"

/* k stores f(n), with f in another object; each object has a private variable of its own. */
static const char kernel_ptx[] = HEAD
	".extern .func (.param .u32 r) f(.param .u32 a);\n.visible .global .u32 n = 40;\n.global .u32 secret = 1;\n"
	".visible .entry k(.param .u64 at)\n{\n	.reg .u64 %p;\n	.reg .u32 %v, %s;\n	ld.param.u64 %p, [at];\n"
	"	ld.global.u32 %v, [n];\n	{\n	.param .u32 a, r;\n	st.param.u32 [a], %v;\n	call (r), f, (a);\n"
	"	ld.param.u32 %v, [r];\n	}\n	ld.global.u32 %s, [secret];\n	add.u32 %v, %v, %s;\n	st.global.u32 [%p], %v;\n	ret;\n}\n";
static const char function_ptx[] = HEAD
	".global .u32 secret = 100;\n"
	".visible .func (.param .u32 r) f(.param .u32 a)\n{\n	.reg .u32 %v, %s;\n	ld.param.u32 %v, [a];\n"
	"	ld.global.u32 %s, [secret];\n	add.u32 %v, %v, %s;\n	st.param.u32 [r], %v;\n	ret;\n}\n";

static CUcontext context;

static void add(CUlinkState s, const char *text, const char *name)
{
	CHECK(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, name, 0, NULL, NULL));
}

static unsigned run(const void *image)
{
	CUmodule m;
	CUfunction k;
	CUdeviceptr at;
	unsigned got = 0;
	CHECK(cuModuleLoadData(&m, image));
	CHECK(cuModuleGetFunction(&k, m, "k"));
	CHECK(cuMemAlloc(&at, 4));
	void *args[] = {&at};
	CHECK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(&got, at, 4));
	CHECK(cuMemFree(at));
	CHECK(cuModuleUnload(m));
	return got;
}

static void plain(void)
{
	CUlinkState s;
	void *image;
	size_t size = 0;
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	add(s, kernel_ptx, "kernel.ptx");
	add(s, function_ptx, NULL);
	CHECK(cuLinkComplete(s, &image, &size));
	CLAIM(size > sizeof kernel_ptx + sizeof function_ptx - 2);
	CLAIM(run(image) == 141);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)function_ptx, sizeof function_ptx, "", 0, NULL, NULL));
	void *copy = malloc(size), *again;
	memcpy(copy, image, size);
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(s, &again, NULL));
	CHECK(cuLinkDestroy(s));
	CLAIM(run(copy) == 141); /* the image can be copied */
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(s));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(s, &again, NULL));

	/* The linker's output can be an input. */
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	CHECK(cuLinkAddData(s, CU_JIT_INPUT_CUBIN, copy, size, NULL, 0, NULL, NULL));
	CHECK(cuLinkComplete(s, &image, NULL));
	CLAIM(run(image) == 141);
	CHECK(cuLinkDestroy(s));
	free(copy);
}

static void variables(void)
{
	CUlinkState s;
	CUmodule m;
	CUdeviceptr at;
	void *image;
	size_t size;
	unsigned value;
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	add(s, kernel_ptx, NULL);
	add(s, function_ptx, NULL);
	CHECK(cuLinkComplete(s, &image, &size));
	CHECK(cuModuleLoadData(&m, image));
	CHECK(cuLinkDestroy(s)); /* the module is independent of it */
	CHECK(cuModuleGetGlobal(&at, &size, m, "n"));
	CLAIM(size == 4);
	CHECK(cuMemcpyDtoH(&value, at, 4));
	CLAIM(value == 40);
	CHECK(cuModuleUnload(m));
}

/* Errors are reported at once, in the log, and with the names of symbol and object. */
static void errors(void)
{
	static char info[256], error[256];
	CUjit_option options[] = {CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
	void *values[] = {NULL, info, (void *)sizeof info, error, (void *)sizeof error, (void *)1};
	CUlinkState s;
	void *image = NULL;
	CHECK(cuLinkCreate(6, options, values, &s));
	CLAIM(error[0] == 0);
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLinkAddData(s, CU_JIT_INPUT_PTX, HEAD "nonsense", sizeof HEAD + 8, "bad.ptx", 0, NULL, NULL));
	CLAIM(strstr(error, "line 4") && strstr(error, "bad.ptx") && strstr(error, "nonsense"));
	CLAIM((uintptr_t)values[4] == strlen(error) + 1);
	add(s, kernel_ptx, "kernel.ptx");
	EXPECT(CUDA_ERROR_UNKNOWN, cuLinkComplete(s, &image, NULL));
	CLAIM(image == NULL);
	EXPECT(CUDA_ERROR_UNKNOWN, cuLinkComplete(s, &image, NULL));
	CLAIM(strstr(error, "kernel.ptx") && strstr(error, "function f is not defined"));
	float milliseconds;
	memcpy(&milliseconds, &values[0], sizeof milliseconds);
	CLAIM(milliseconds > 0 && milliseconds < 60e3f);
	CHECK(cuLinkDestroy(s));

	values[2] = (void *)sizeof info; /* address of a result */
	values[4] = (void *)sizeof error;
	CHECK(cuLinkCreate(6, options, values, &s));
	add(s, function_ptx, "one.ptx");
	add(s, function_ptx, "two.ptx");
	EXPECT(CUDA_ERROR_UNKNOWN, cuLinkComplete(s, &image, NULL));
	CLAIM(strstr(error, "two.ptx: f is defined twice") && strstr(error, "one.ptx"));
	CHECK(cuLinkDestroy(s));

	/* An input may have a log of its own. */
	static char own[256];
	CUjit_option two[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *own_values[] = {own, (void *)sizeof own};
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLinkAddData(s, CU_JIT_INPUT_PTX, "", 1, NULL, 2, two, own_values));
	CLAIM(strstr(own, ".version"));
	/* The log names the function of a mistake, and no earlier image. */
	own_values[1] = (void *)sizeof own;
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLinkAddData(s, CU_JIT_INPUT_PTX, HEAD ".entry k() { oops; }", sizeof HEAD ".entry k() { oops; }", NULL, 2, two, own_values));
	CLAIM(strstr(own, "kernel k: unknown instruction oops"));
	static const char empty[64] = "\x50\xed\x55\xba\1\0\x10";
	own_values[1] = (void *)sizeof own;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLinkAddData(s, CU_JIT_INPUT_FATBINARY, (void *)empty, sizeof empty, NULL, 2, two, own_values));
	CLAIM(strstr(own, "nothing in it"));
	own_values[1] = (void *)sizeof own;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLinkAddData(s, CU_JIT_INPUT_OBJECT, (void *)empty, sizeof empty, NULL, 2, two, own_values));
	CLAIM(strstr(own, "an input of this type has no PTX"));
	CHECK(cuLinkDestroy(s));
}

/* Data that is neither PTX nor a supported image is rejected, whatever its declared type and in all calls. */
static void no_images(void)
{
	static const char *const junk[] = {
		"hello, world: this is no image", "root:x:0:0:root:/root:/bin/bash", ".target sm_52\n.version 6.4\n", "// a comment, no more",
		"\1\2\3\4\5\6\7\10 noise", "{\"kernels\": []}", "version 6.0", " \t\n ", "BM (a picture)",
	};
	static const CUjitInputType types[] = {CU_JIT_INPUT_PTX, CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY, CU_JIT_INPUT_OBJECT,
		CU_JIT_INPUT_LIBRARY, CU_JIT_INPUT_NVVM};
	char name[] = "/tmp/pegasus-junk-XXXXXX";
	CUlinkState s;
	CUmodule m;
	CUlibrary l;
	int file = mkstemp(name);
	CLAIM(file >= 0);
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) {
		size_t bytes = strlen(junk[i]) + 1;
		CLAIM(pwrite(file, junk[i], bytes, 0) == (ssize_t)bytes && ftruncate(file, (off_t)bytes) == 0);
		EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, junk[i]));
		EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoad(&m, name));
		EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadData(&l, junk[i], NULL, NULL, 0, NULL, NULL, 0));
		for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
			EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLinkAddData(s, types[t], (void *)junk[i], bytes, NULL, 0, NULL, NULL));
			EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLinkAddFile(s, types[t], name, 0, NULL, NULL));
		}
	}
	/* The host's ELF files are none; their device code, if there is any, is for the linker's type OBJECT. */
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoad(&m, "/proc/self/exe"));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadFromFile(&l, "/proc/self/exe", NULL, NULL, 0, NULL, NULL, 0));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLinkAddFile(s, CU_JIT_INPUT_CUBIN, "/proc/self/exe", 0, NULL, NULL));
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLinkAddFile(s, CU_JIT_INPUT_OBJECT, "/proc/self/exe", 0, NULL, NULL));

	/* Beginnings of a GPU's ELF file, of a fat binary, and a wrapper, whose pointers are those of another process. */
	static const struct { uint8_t bytes[64]; size_t least; } parts[] = {
		{{0x7f, 'E', 'L', 'F', 2, 1, 1, [18] = 190, [42] = 0x10, [58] = 64, [60] = 50}, 4},
		{{0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 1}, 4},
		{{0xb1, 0x43, 0x62, 0x46, 1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1}, 4},
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		for (size_t n = parts[i].least; n <= sizeof parts->bytes; n += 4) {
			CLAIM(pwrite(file, parts[i].bytes, n, 0) == (ssize_t)n && ftruncate(file, (off_t)n) == 0);
			EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoad(&m, name));
			EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadFromFile(&l, name, NULL, NULL, 0, NULL, NULL, 0));
			EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLinkAddFile(s, CU_JIT_INPUT_CUBIN, name, 0, NULL, NULL));
			EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLinkAddFile(s, CU_JIT_INPUT_FATBINARY, name, 0, NULL, NULL));
		}
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, HEAD "nonsense"));
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, ".version nonsense"));
	CHECK(cuLinkDestroy(s));
	close(file);
	unlink(name);
}

static void arguments(void)
{
	CUlinkState s;
	void *image;
	static const char elf[128] = {0x7f, 'E', 'L', 'F', 2, [18] = (char)190 /* a GPU's */};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkCreate(0, NULL, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkCreate(1, NULL, NULL, &s));
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkAddData(s, CU_JIT_INPUT_PTX, NULL, 10, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)kernel_ptx, 0, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLinkAddData(s, (CUjitInputType)99, (void *)kernel_ptx, 10, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLinkAddData(s, CU_JIT_INPUT_CUBIN, (void *)elf, sizeof elf, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLinkAddData(s, CU_JIT_INPUT_LIBRARY, (void *)elf, sizeof elf, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile(s, CU_JIT_INPUT_PTX, "/nowhere.ptx", 0, NULL, NULL));
	EXPECT(CUDA_ERROR_UNKNOWN, cuLinkComplete(s, &image, NULL)); /* without inputs */
	CHECK(cuLinkDestroy(s));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)kernel_ptx, sizeof kernel_ptx, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLinkAddFile(NULL, CU_JIT_INPUT_PTX, "x", 0, NULL, NULL));
}

static void files(void)
{
	char name[] = "/tmp/linkingXXXXXX";
	int fd = mkstemp(name);
	CLAIM(fd >= 0 && write(fd, function_ptx, sizeof function_ptx - 1) == sizeof function_ptx - 1);
	close(fd);
	CUlinkState s;
	void *image;
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	add(s, kernel_ptx, NULL);
	CHECK(cuLinkAddFile(s, CU_JIT_INPUT_PTX, name, 0, NULL, NULL));
	unlink(name);
	CHECK(cuLinkComplete(s, &image, NULL));
	CLAIM(run(image) == 141);
	CHECK(cuLinkDestroy(s));
}

/* A link state outlives its context: it accepts inputs, but has no device to link them for. */
static void afterwards(void)
{
	CUlinkState s, none;
	void *image;
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	CHECK(cuCtxDestroy(context));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuLinkCreate(0, NULL, NULL, &none));
	CHECK(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)kernel_ptx, sizeof kernel_ptx, NULL, 0, NULL, NULL));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuLinkComplete(s, &image, NULL));
	CHECK(cuLinkDestroy(s));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"plain", plain}, {"variables", variables}, {"errors", errors}, {"arguments", arguments}, {"files", files}, {"no-images", no_images},
		{"afterwards", afterwards},
	};
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: linking PART\n");
	return 2;
}
