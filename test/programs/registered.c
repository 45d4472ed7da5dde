/* Host memory that programs register, and have kernels use where it lies: registered PART. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

static CUcontext context;
static CUfunction step, move;
static CUstream stream;

static void start(void)
{
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, step_ptx));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	CHECK(cuModuleGetFunction(&move, module, "move"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static int attribute(CUdevice_attribute what)
{
	int value;
	CHECK(cuDeviceGetAttribute(&value, what, 0));
	return value;
}

static void *pages(size_t bytes, int protection, int flags, int fd)
{
	void *p = mmap(NULL, bytes, protection, flags, fd, 0);
	CLAIM(p != MAP_FAILED);
	return p;
}

static void *own_pages(size_t bytes) { return pages(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

static CUdeviceptr device_of(void *p)
{
	CUdeviceptr d;
	CHECK(cuMemHostGetDevicePointer(&d, p, 0));
	return d;
}

static uint64_t pointer_attribute(CUpointer_attribute what, CUdeviceptr at)
{
	uint64_t value = 0;
	CHECK(cuPointerGetAttribute(&value, what, at));
	return value;
}

/* A kernel and the program see each other's writes, without any copy. */
static void use(volatile uint32_t *p, CUdeviceptr d)
{
	for (uint32_t i = 1; i < 4; i++) {
		*p = i;
		launch_step(step, stream, d, 10, 7);
		CHECK(cuStreamSynchronize(stream));
		CLAIM(*p == 10 * i + 7);
	}
}

static void mapped(void)
{
	size_t bytes = 4 * MIB;
	uint8_t *p = own_pages(bytes);
	unsigned flags;
	CLAIM(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 1 && attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) == 1);
	CLAIM(attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) == 1);
	CLAIM(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0);
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 31 >> 3);
	CHECK(cuMemHostRegister(p, bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
	for (size_t i = 0; i < bytes; i++)
		CLAIM(p[i] == (uint8_t)(i * 31 >> 3));
	CHECK(cuMemHostGetFlags(&flags, p + 5));
	CLAIM(flags == (CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
	CUdeviceptr d = device_of(p), base;
	CLAIM(device_of(p + 100) == d + 100);
	use((uint32_t *)p, d);
	use((uint32_t *)(p + bytes - 4), d + bytes - 4);

	/* What each address is. */
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)p;
	size_t size;
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host + 8) == d + 8);
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, host + 8) == host + 8);
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, d + 8) == host + 8);
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, d + 8) == d + 8);
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host) == CU_MEMORYTYPE_HOST);
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d) == CU_MEMORYTYPE_HOST);
	CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_MAPPED, host) == 1 && pointer_attribute(CU_POINTER_ATTRIBUTE_MAPPED, d) == 1);
	CHECK(cuMemGetAddressRange(&base, &size, d + 8));
	CLAIM(base == d && size == bytes);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)(uintptr_t)d));
	EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(p + PAGE, PAGE, 0));

	/* Copies come in their turn, whichever address they are given. */
	CUdeviceptr cell;
	uint32_t *words = (uint32_t *)p, *others = malloc(64 * 4);
	CHECK(cuMemAlloc(&cell, 4096));
	words[0] = 1;
	for (int i = 0; i < 200; i++)
		launch_step(step, stream, d, 1, 1);
	CHECK(cuMemcpyHtoDAsync(cell, p, 4, stream));
	launch_step(step, stream, cell, 1, 1000);
	CHECK(cuMemcpyDtoHAsync(p + 8, cell, 4, stream));
	launch_step(step, stream, d + 8, 2, 0);
	CHECK(cuMemcpyDtoDAsync(cell + 4, d + 8, 4, stream));
	CHECK(cuStreamSynchronize(stream));
	CLAIM(words[0] == 201 && words[2] == 2402);
	CHECK(cuMemcpyDtoH(others, cell + 4, 4));
	CLAIM(others[0] == 2402);
	CHECK(cuMemsetD32(d, 9, 64));
	CHECK(cuMemcpy((CUdeviceptr)(uintptr_t)others, host, 64 * 4));
	CLAIM(others[0] == 9 && others[63] == 9);
	CHECK(cuMemHostUnregister(p));
	CLAIM(words[0] == 9 && words[63] == 9 && p[bytes - 1] == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&d, p, 0));
	EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(p));

	/* Also memory that was registered for no kernel, when it is asked for; and again and again. */
	for (int i = 0; i < 20; i++) {
		memset(p, i, 64);
		CHECK(cuMemHostRegister(p, bytes, 0));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host));
		CLAIM(p[63] == i);
		use((uint32_t *)p, device_of(p));
		CHECK(cuMemHostUnregister(p));
		CLAIM(p[63] == i);
	}
	CLAIM(munmap(p, bytes) == 0);
}

/* Other threads change the memory while it is moved, and allocate beside it. */
static _Atomic bool stop;

static void *count(void *word)
{
	volatile uint32_t *w = word;
	for (uint32_t n = 1; !stop; n++) {
		*w = n;
		if (*w != n) {
			dprintf(report, "a write was lost: %u, want %u\n", *w, n);
			_exit(1);
		}
	}
	return NULL;
}

static void *allocate(void *unused)
{
	(void)unused;
	for (size_t n = 1; !stop; n = n * 7 % 4093) {
		uint8_t *p = malloc(n);
		memset(p, 1, n);
		free(p);
	}
	return NULL;
}

static void written(void)
{
	uint8_t *p = own_pages(8 * PAGE);
	pthread_t threads[3];
	memset(p, 1, 8 * PAGE);
	CLAIM(pthread_create(&threads[0], NULL, count, p) == 0 && pthread_create(&threads[1], NULL, count, p + 8 * PAGE - 8) == 0);
	CLAIM(pthread_create(&threads[2], NULL, allocate, NULL) == 0);
	int moved = 0;
	for (int i = 0; i < 300; i++) {
		CUresult r = cuMemHostRegister(p, 8 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP);
		if (r == CUDA_ERROR_NOT_SUPPORTED) /* a kernel without userfaultfd */
			continue;
		CHECK(r);
		moved++;
		CLAIM(p[8] == 1 && p[8 * PAGE - 9] == 1);
		usleep(100);
		if (i % 30 == 0) {
			pid_t child = fork();
			CLAIM(child >= 0);
			if (child == 0)
				_exit(p[8] != 1);
			int status;
			CLAIM(waitpid(child, &status, 0) == child && status == 0);
		}
		CHECK(cuMemHostUnregister(p));
		usleep(100);
	}
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("moved %d of 300\n", moved);

	/* A large allocation of malloc's has its pages alone. */
	bool checked = dlsym(RTLD_DEFAULT, "__asan_init") != NULL; /* then malloc is another */
	for (size_t bytes = MIB; bytes < 40 * MIB && !checked; bytes *= 3) {
		uint32_t *m = malloc(bytes), *aligned = NULL;
		CLAIM(posix_memalign((void **)&aligned, 8192, bytes) == 0);
		CHECK(cuMemHostRegister(m, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
		CHECK(cuMemHostRegister(aligned, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
		use(m, device_of(m));
		use(aligned + bytes / 4 - 1, device_of(aligned + bytes / 4 - 1));
		CHECK(cuMemHostUnregister(m));
		CHECK(cuMemHostUnregister(aligned));
		free(m);
		free(aligned);
	}
}

/* A child has what its parent had, for itself. */
static void forked(void)
{
	volatile uint32_t *p = own_pages(2 * PAGE);
	p[0] = 41;
	CHECK(cuMemHostRegister((void *)(uintptr_t)p, 2 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CUdeviceptr d = device_of((void *)(uintptr_t)p);
	launch_step(step, stream, d, 1, 1);
	CHECK(cuStreamSynchronize(stream));
	pid_t child = fork();
	CLAIM(child >= 0);
	if (child == 0) {
		bool good = p[0] == 42 && p[1] == 0;
		for (size_t i = 0; i < 2 * PAGE / 4; i++)
			p[i] = 99;
		_exit(good && p[0] == 99 ? 0 : 1);
	}
	int status;
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
	CLAIM(p[0] == 42 && p[1] == 0);
	use(p, d);
	CLAIM(system("true") == 0);
	CHECK(cuMemHostUnregister((void *)(uintptr_t)p));
}

/* What can't be moved can be registered, but has no address for kernels. */
static void refused(void)
{
	CUdeviceptr d;
	uint32_t automatic[64] = {0};
	int fd = memfd_create("shared", 0);
	CLAIM(fd >= 0 && ftruncate(fd, 2 * (off_t)PAGE) == 0);
	uint32_t *shared = pages(2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd), *same = pages(2 * PAGE, PROT_READ, MAP_SHARED, fd);
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(shared, 2 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(shared, 2 * PAGE, CU_MEMHOSTREGISTER_PORTABLE));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer(&d, shared, 0));
	shared[0] = 5;
	CLAIM(same[0] == 5); /* still shared */
	CHECK(cuMemHostUnregister(shared));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(automatic, sizeof automatic, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(automatic, sizeof automatic, 0));
	CHECK(cuMemHostUnregister(automatic));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(shared, PAGE, CU_MEMHOSTREGISTER_IOMEMORY));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(shared, PAGE, 16));

	/* Parts of pages, with which a forked child's C library could write to its parent's heap. */
	uint8_t *part = own_pages(2 * PAGE), *small = malloc(100);
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(part, 6000, CU_MEMHOSTREGISTER_DEVICEMAP));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(part + 16, 2 * PAGE - 16, CU_MEMHOSTREGISTER_DEVICEMAP));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(small, 100, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(small, 100, 0));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer(&d, small, 0));
	CHECK(cuMemHostUnregister(small));

	/* Memory that only can be read: with the flag for that. */
	uint32_t *fixed = own_pages(PAGE), result;
	CUdeviceptr cell;
	CHECK(cuMemAlloc(&cell, 4));
	fixed[7] = 77;
	CLAIM(mprotect(fixed, PAGE, PROT_READ) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(fixed, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(fixed, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY));
	launch_move(move, stream, cell, device_of(fixed + 7));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(&result, cell, 4));
	CLAIM(result == 77 && fixed[7] == 77);
	CHECK(cuMemHostUnregister(fixed));
	CHECK(cuMemHostRegister(same, PAGE, CU_MEMHOSTREGISTER_READ_ONLY)); /* a file of weights, as programs map it */
	CHECK(cuMemHostUnregister(same));

	/* More than there is for it. */
	size_t much = 1024 * MIB;
	uint8_t *large = pages(much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostRegister(large, much, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(large, 4 * MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostUnregister(large));

	/* What was registered stays the program's when its context goes. */
	uint32_t *p = own_pages(PAGE);
	p[3] = 33;
	CHECK(cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	d = device_of(p);
	CHECK(cuCtxDestroy(context));
	CLAIM(p[3] == 33);
	p[3] = 34;
	start();
	CHECK(cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CLAIM(p[3] == 34);
	use(p, device_of(p));
	CLAIM(munmap(p, PAGE) == 0); /* which a program should not, but may */
	CHECK(cuMemHostUnregister(p));
}

/* Where devices reach no host memory, they say so, and memory can be registered all the same. */
static void absent(void)
{
	uint32_t *p = own_pages(PAGE);
	CUdeviceptr d;
	CLAIM(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 0 && attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) == 0);
	CLAIM(attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) == 0);
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_PORTABLE));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer(&d, p, 0));
	CHECK(cuMemHostUnregister(p));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {{"mapped", mapped}, {"written", written}, {"forked", forked}, {"refused", refused}, {"absent", absent}};
	start();
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: registered PART\n");
	return 2;
}
