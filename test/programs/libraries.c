/* Libraries and kernels without contexts, one corner at a time: libraries PART. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define HEAD ".version 6.0\n.target sm_50\n.address_size 64\n"

/* count: *at = f(n), with f of another object; and n grows. idle: nothing. */
static const char count_ptx[] = HEAD
	".extern .func (.param .u32 r) f(.param .u32 a);\n.visible .global .u32 n = 40;\n"
	".visible .entry count(.param .u64 at, .param .u8 unused)\n{\n	.reg .u64 %p;\n	.reg .u32 %v;\n	ld.param.u64 %p, [at];\n"
	"	ld.global.u32 %v, [n];\n	add.u32 %v, %v, 1;\n	st.global.u32 [n], %v;\n	{\n	.param .u32 a, r;\n"
	"	st.param.u32 [a], %v;\n	call (r), f, (a);\n	ld.param.u32 %v, [r];\n	}\n	st.global.u32 [%p], %v;\n	ret;\n}\n"
	".visible .entry idle()\n{\n	ret;\n}\n";
static const char f_ptx[] = HEAD
	".visible .func (.param .u32 r) f(.param .u32 a)\n{\n	.reg .u32 %v;\n	ld.param.u32 %v, [a];\n"
	"	add.u32 %v, %v, 100;\n	st.param.u32 [r], %v;\n	ret;\n}\n";
static char whole_ptx[sizeof count_ptx + sizeof f_ptx]; /* both in one */

static CUlibrary load(const void *code)
{
	CUlibrary l;
	CHECK(cuLibraryLoadData(&l, code, NULL, NULL, 0, NULL, NULL, 0));
	return l;
}

static CUkernel kernel_of(CUlibrary l, const char *name)
{
	CUkernel k;
	CHECK(cuLibraryGetKernel(&k, l, name));
	return k;
}

static CUcontext context_new(void)
{
	CUcontext c;
	CHECK(cuCtxCreate(&c, 0, 0));
	return c;
}

/* One launch of count, of a function or a kernel, in the current context. */
static unsigned count(CUfunction f)
{
	CUdeviceptr at;
	unsigned got = 0;
	char unused = 0;
	CHECK(cuMemAlloc(&at, 4));
	void *args[] = {&at, &unused};
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(&got, at, 4));
	CHECK(cuMemFree(at));
	return got;
}

static void use(CUlibrary l)
{
	CLAIM(count((CUfunction)kernel_of(l, "count")) == 141);
	CLAIM(count((CUfunction)kernel_of(l, "count")) == 142);
	CHECK(cuLibraryUnload(l));
}

/* Queries that work without a context, and queries that fail. */
static void early(void)
{
	CUlibrary l = load(whole_ptx), of;
	CUkernel k, all[5];
	CUfunction f;
	CUmodule m;
	CUdeviceptr at;
	const char *name;
	size_t size, offset, params;
	unsigned n;
	int value;
	CHECK(cuLibraryGetKernelCount(&n, l));
	CLAIM(n == 2);
	memset(all, 0, sizeof all);
	CHECK(cuLibraryEnumerateKernels(all, 5, l));
	CLAIM(all[0] && all[1] && all[0] != all[1] && !all[2]);
	for (int i = 0; i < 2; i++) {
		CHECK(cuKernelGetName(&name, all[i]));
		CLAIM(kernel_of(l, name) == all[i]);
		CHECK(cuKernelGetLibrary(&of, all[i]));
		CLAIM(of == l);
	}
	k = kernel_of(l, "count");
	CHECK(cuKernelGetParamCount(k, &params));
	CHECK(cuKernelGetParamInfo(k, 1, &offset, &size));
	CLAIM(params == 2 && offset == 8 && size == 1);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuKernelGetParamInfo(k, 2, &offset, &size));
	CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, k, 0));
	CLAIM(value == 50);
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, k, 99));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&k, l, "nothing"));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&f, k));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuLibraryGetModule(&m, l));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuLibraryGetGlobal(&at, &size, l, "n"));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	context_new();
	use(l);
}

/* A context has a module of its own, with its own variables, which is destroyed with it. */
static void contexts(void)
{
	CUlibrary l = load(whole_ptx);
	CUkernel k = kernel_of(l, "count");
	CUcontext one = context_new(), other;
	CUfunction f, again;
	CUmodule m, of;
	CUdeviceptr at, elsewhere;
	size_t size;
	unsigned value = 70;
	CLAIM(count((CUfunction)k) == 141);
	CHECK(cuKernelGetFunction(&f, k));
	CHECK(cuKernelGetFunction(&again, k));
	CLAIM(f == again && count(f) == 142);
	CHECK(cuLibraryGetModule(&m, l));
	CHECK(cuFuncGetModule(&of, f));
	CLAIM(of == m);
	CHECK(cuModuleGetFunction(&again, m, "count"));
	CLAIM(again == f);
	EXPECT(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(m));
	CHECK(cuLibraryGetGlobal(&at, &size, l, "n"));
	CLAIM(size == 4);
	CHECK(cuMemcpyHtoD(at, &value, 4));
	CLAIM(count((CUfunction)k) == 171);

	other = context_new();
	CHECK(cuLibraryGetGlobal(&elsewhere, NULL, l, "n"));
	CLAIM(elsewhere != at && count((CUfunction)k) == 141);
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, (void *[]){CU_LAUNCH_PARAM_END}));
	CHECK(cuKernelGetFunction(&again, k));
	CLAIM(again != f);

	/* A kernel runs in its stream's context, whatever context is current. */
	CUstream s;
	CHECK(cuCtxSetCurrent(one));
	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuMemAlloc(&at, 4));
	CHECK(cuCtxSetCurrent(other));
	char unused = 0;
	void *args[] = {&at, &unused};
	CHECK(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuCtxSetCurrent(one));
	CHECK(cuMemcpyDtoH(&value, at, 4));
	CLAIM(value == 172);
	CHECK(cuCtxDestroy(one));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetModule(&of, f));
	CHECK(cuCtxSetCurrent(other));
	CLAIM(count((CUfunction)k) == 142);
	one = context_new();
	CLAIM(count((CUfunction)k) == 141);
	CHECK(cuLibraryUnload(l));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetModule(&of, again));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&f, k));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(l));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetKernel(&k, l, "count"));
	CHECK(cuCtxSynchronize());
}

/* --- images --- */

struct entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t payload;
	uint32_t compressed, unknown;
	uint16_t minor, major;
	uint32_t sm, name, name_bytes;
	uint64_t flags, zero, plain;
};

struct fat {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes;
	struct entry e;
	char payload[4096];
};

struct wrapper {
	uint32_t magic, version;
	const void *fat, *more;
};

enum { KIND_PTX = 1, KIND_ELF = 2, LZ4 = 0x2000 };

/* A fat binary of one entry; packed: as LZ4 that has literals only. */
static struct fat fat_of(int kind, const char *text, int packed)
{
	struct fat f = {.magic = 0xba55ed50, .version = 1, .header = 16};
	size_t n = strlen(text) + 1;
	char *to = f.payload;
	f.e = (struct entry){.kind = (uint16_t)kind, .version = 0x101, .header = sizeof f.e, .payload = sizeof f.payload, .sm = 50};
	if (packed) {
		*to++ = (char)0xf0;
		size_t left = n - 15;
		for (; left >= 255; left -= 255)
			*to++ = (char)255;
		*to++ = (char)left;
		f.e.flags = LZ4;
		f.e.plain = n;
		f.e.compressed = (uint32_t)(to - f.payload + (ptrdiff_t)n);
	}
	CLAIM((size_t)(to - f.payload) + n <= sizeof f.payload);
	memcpy(to, text, n);
	f.bytes = sizeof f.e + sizeof f.payload;
	return f;
}

static void images(void)
{
	context_new();
	use(load(whole_ptx));
	struct fat plain = fat_of(KIND_PTX, whole_ptx, 0), packed = fat_of(KIND_PTX, whole_ptx, 1);
	use(load(&plain));
	use(load(&packed));
	struct wrapper w = {0x466243b1, 1, &packed, "whole.cu"};
	CUlibrary l = load(&w);
	memset(&packed, 0xff, sizeof packed); /* the library has copied it */
	use(l);

	/* The inputs of a linked program, beside the result in machine code. */
	struct fat code = fat_of(KIND_ELF, "\177ELF", 0), a = fat_of(KIND_PTX, count_ptx, 1), b = fat_of(KIND_PTX, f_ptx, 0);
	const void *parts[] = {&a, &b, NULL};
	w = (struct wrapper){0x466243b1, 2, &code, parts};
	use(load(&w));
	w.version = 1;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLibraryLoadData(&l, &w, NULL, NULL, 0, NULL, NULL, 0));
	w = (struct wrapper){0x466243b1, 2, &code, NULL};
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLibraryLoadData(&l, &w, NULL, NULL, 0, NULL, NULL, 0));
	w = (struct wrapper){0x466243b1, 2, &plain, parts}; /* the whole program is better */
	use(load(&w));

	/* The linker's output. */
	CUlinkState s;
	void *image;
	size_t size;
	CHECK(cuLinkCreate(0, NULL, NULL, &s));
	CHECK(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)count_ptx, sizeof count_ptx, NULL, 0, NULL, NULL));
	CHECK(cuLinkAddData(s, CU_JIT_INPUT_FATBINARY, &b, sizeof b, NULL, 0, NULL, NULL));
	CHECK(cuLinkComplete(s, &image, &size));
	l = load(image);
	CHECK(cuLinkDestroy(s));
	use(l);

	char name[] = "/tmp/librariesXXXXXX";
	int fd = mkstemp(name);
	CLAIM(fd >= 0 && write(fd, &plain, sizeof plain) == sizeof plain);
	close(fd);
	CHECK(cuLibraryLoadFromFile(&l, name, NULL, NULL, 0, NULL, NULL, 0));
	unlink(name);
	use(l);
	EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuLibraryLoadFromFile(&l, name, NULL, NULL, 0, NULL, NULL, 0));
}

/* Options and their results. */
static void options(void)
{
	static char error[256];
	CUjit_option jit[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {error, (void *)sizeof error};
	CUlibraryOption of[] = {CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE, CU_LIBRARY_BINARY_IS_PRESERVED, (CUlibraryOption)9};
	CUlibrary l;
	CUkernel k;
	CUdeviceptr at;
	void *pointer;
	size_t size;
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLibraryLoadData(&l, HEAD "nonsense", jit, values, 2, NULL, NULL, 0));
	CLAIM(strstr(error, "line 4") && strstr(error, "nonsense"));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(&l, whole_ptx, jit, NULL, 2, NULL, NULL, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(&l, whole_ptx, NULL, NULL, 0, of, NULL, 3));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(&l, whole_ptx, NULL, NULL, 0, NULL, NULL, 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(NULL, whole_ptx, NULL, NULL, 0, NULL, NULL, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(&l, NULL, NULL, NULL, 0, NULL, NULL, 0));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadData(&l, "\1\2\3\4", NULL, NULL, 0, NULL, NULL, 0));

	/* Errors within a fat binary are reported at the first use; with a log, at once. */
	struct fat bad = fat_of(KIND_PTX, HEAD "nonsense, and more of it", 1);
	CHECK(cuLibraryLoadData(&l, &bad, NULL, NULL, 0, of, NULL, 2));
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLibraryGetKernel(&k, l, "count"));
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLibraryGetKernel(&k, l, "count"));
	CHECK(cuLibraryUnload(l));
	values[1] = (void *)sizeof error;
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLibraryLoadData(&l, &bad, jit, values, 2, NULL, NULL, 0));

	context_new();
	CHECK(cuLibraryLoadData(&l, whole_ptx, NULL, NULL, 0, of, NULL, 2));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal(&at, &size, l, "m"));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&at, &size, l, "n"));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetUnifiedFunction(&pointer, l, "f"));
	use(l);
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetManaged(&at, &size, l, "n"));
}

/* A kernel's settings apply to its functions, except those that have settings of their own. */
static void attributes(void)
{
	CUlibrary l = load(whole_ptx);
	CUkernel k = kernel_of(l, "count"), idle = kernel_of(l, "idle");
	const CUfunction_attribute dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	const CUfunction_attribute carveout = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
	CUfunctionLoadingState state;
	CUfunction f;
	int value, blocks, size;
	CHECK(cuKernelSetAttribute(dynamic, 1000, k, 0));
	CHECK(cuKernelGetAttribute(&value, dynamic, k, 0));
	CLAIM(value == 1000);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, k, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuKernelSetAttribute(dynamic, 1 << 20, k, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuKernelSetAttribute(carveout, 101, k, 0));
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuKernelSetAttribute(carveout, 50, k, 7));
	CHECK(cuKernelSetCacheConfig(k, CU_FUNC_CACHE_PREFER_L1, 0));
	context_new();
	CHECK(cuKernelGetFunction(&f, k));
	CHECK(cuFuncGetAttribute(&value, dynamic, f));
	CLAIM(value == 1000);
	CHECK(cuKernelSetAttribute(carveout, 50, k, 0));
	CHECK(cuFuncGetAttribute(&value, carveout, f));
	CLAIM(value == 50);
	CHECK(cuFuncSetAttribute(f, dynamic, 2000));
	CHECK(cuKernelSetAttribute(dynamic, 3000, k, 0));
	CHECK(cuFuncGetAttribute(&value, dynamic, f));
	CLAIM(value == 2000);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 2001, NULL, NULL, NULL));
	context_new();
	CHECK(cuKernelGetFunction(&f, k));
	CHECK(cuFuncGetAttribute(&value, dynamic, f));
	CLAIM(value == 3000);

	/* Calls for functions with a counterpart for kernels don't accept kernels. */
	CUfunction cast = (CUfunction)k;
	CUmodule m;
	const char *name;
	size_t offset;
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&value, dynamic, cast));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncSetAttribute(cast, dynamic, 1000));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncSetCacheConfig(cast, CU_FUNC_CACHE_PREFER_L1));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncSetSharedMemConfig(cast, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetModule(&m, cast));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, cast));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetParamInfo(cast, 0, &offset, NULL));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetParamCount(cast, &offset));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncSetBlockShape(cast, 1, 1, 1));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuParamSetSize(cast, 0));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunch(cast));

	/* Other calls accept a kernel in place of a function. */
	CHECK(cuFuncIsLoaded(&state, (CUfunction)k));
	CLAIM(state == CU_FUNCTION_LOADING_STATE_LOADED);
	CHECK(cuFuncLoad((CUfunction)k));
	CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)k, 64, 0));
	CHECK(cuOccupancyMaxPotentialBlockSize(&blocks, &size, (CUfunction)k, NULL, 0, 0));
	CLAIM(blocks > 0 && size > 0);
	CHECK(cuLaunchCooperativeKernel((CUfunction)idle, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
	CHECK(cuLaunchKernelEx(&config, (CUfunction)idle, NULL, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuLibraryUnload(l));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncLoad((CUfunction)k));
}

/* --- several threads --- */

static _Atomic(CUlibrary) library;
static _Atomic(CUkernel) kernel;
static _Atomic int stop, done;

static void *launch_on(void *unused)
{
	CUcontext c = context_new();
	CUdeviceptr at;
	char byte = 0;
	CHECK(cuMemAlloc(&at, 4));
	void *args[] = {&at, &byte};
	while (!stop) {
		CUkernel k = NULL;
		CUresult r = cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
		CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_HANDLE);
		done += r == CUDA_SUCCESS;
		r = cuLibraryGetKernel(&k, library, "count");
		CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_HANDLE);
		CHECK(cuCtxSynchronize());
	}
	CHECK(cuCtxDestroy(c));
	return unused;
}

/* Libraries are unloaded while other threads use them. */
static void threads(void)
{
	enum { THREADS = 4 };
	pthread_t id[THREADS];
	library = load(whole_ptx);
	kernel = kernel_of(library, "count");
	for (int i = 0; i < THREADS; i++)
		CLAIM(pthread_create(&id[i], NULL, launch_on, NULL) == 0);
	for (int round = 0; round < 40 || done < 40; round++) {
		CUlibrary old = library, l = load(whole_ptx);
		int before = done;
		kernel = kernel_of(l, "count");
		library = l;
		CHECK(cuLibraryUnload(old));
		for (int i = 0; i < 1000 && done < before + 4; i++)
			usleep(1000);
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	CHECK(cuLibraryUnload(library));
}

static void fork_of(void)
{
	CUlibrary l = load(whole_ptx), other;
	CUkernel k = kernel_of(l, "count");
	unsigned n;
	int status;
	context_new();
	CLAIM(count((CUfunction)k) == 141);
	pid_t child = fork();
	if (child == 0) {
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuLibraryGetKernelCount(&n, l));
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuLibraryLoadData(&other, whole_ptx, NULL, NULL, 0, NULL, NULL, 0));
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuLibraryUnload(l));
		EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		_exit(0);
	}
	CLAIM(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CLAIM(count((CUfunction)k) == 142);
	CHECK(cuLibraryUnload(l));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"early", early}, {"contexts", contexts}, {"images", images}, {"options", options}, {"attributes", attributes},
		{"threads", threads}, {"fork", fork_of},
	};
	snprintf(whole_ptx, sizeof whole_ptx, "%s%s", f_ptx, strstr(count_ptx, ".visible .global"));
	CHECK(cuInit(0));
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: libraries PART\n");
	return 2;
}
