/* Host memory that programs register, and that kernels access in place: registered PART. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* A kernel and the program see each other's writes without copies. */
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

	/* The pointer attributes of each address. */
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

	/* Copies are in stream order, by whichever address. */
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

	/* Also memory that was registered without the flag, when its device address is requested; and repeatedly. */
	for (int i = 0; i < 20; i++) {
		memset(p, i, 64);
		CHECK(cuMemHostRegister(p, bytes, 0));
		if (i % 2)
			CLAIM(pointer_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host + 8) == device_of(p) + 8);
		CLAIM(p[63] == i);
		use((uint32_t *)p, device_of(p));
		CHECK(cuMemHostUnregister(p));
		CLAIM(p[63] == i);
	}
	CLAIM(munmap(p, bytes) == 0);
}

/* Other threads change the memory while it is moved, and allocate next to it. */
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

	/* A large allocation of malloc has pages of its own. */
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

/* A child has its own copy of its parent's memory. */
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

/* Memory that cannot be moved can be registered, but has no device address. */
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

	/* Memory that can only be read: with the flag for that. */
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
	CHECK(cuMemHostRegister(same, PAGE, CU_MEMHOSTREGISTER_READ_ONLY)); /* a mapped file of weights */
	CHECK(cuMemHostUnregister(same));

	/* Freed memory of CUDA's own, which later allocations get. */
	void *pinned;
	CUdeviceptr freed;
	for (int i = 0; i < 2; i++) {
		CHECK(cuMemHostAlloc(&pinned, PAGE, 0));
		CHECK(cuMemAlloc(&freed, PAGE));
		EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(pinned, PAGE, 0));
		CHECK(cuMemFreeHost(pinned));
		CHECK(cuMemFree(freed));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(pinned, PAGE, 0));
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister((void *)(uintptr_t)freed, PAGE, 0));
	}

	/* More than the arena holds. */
	size_t much = 1024 * MIB;
	uint8_t *large = pages(much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostRegister(large, much, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostRegister(large, 4 * MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostUnregister(large));

	/* Registered memory stays the program's after its context is destroyed. */
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
	CLAIM(munmap(p, PAGE) == 0); /* programs should not do this, but may */
	CHECK(cuMemHostUnregister(p));
}

/*
 * A child has the contents at the time of the fork, and the access permissions of its parent, whatever the parent does
 * next.
 */
static void snapshot(void)
{
	size_t bytes = 32 * MIB;
	uint8_t *p = own_pages(bytes);
	int status;
	memset(p, 1, bytes);
	CHECK(cuMemHostRegister(p, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
	CLAIM(mprotect(p + PAGE, PAGE, PROT_NONE) == 0);
	for (int i = 0; i < 5; i++) {
		p[0] = p[bytes - 1] = 1;
		pid_t child = fork();
		CLAIM(child >= 0);
		if (child == 0) {
			bool good = p[0] == 1 && p[bytes - 1] == 1;
			int ends[2];
			CLAIM(pipe(ends) == 0);
			good = good && write(ends[1], p + PAGE, 1) == -1; /* no access */
			CLAIM(mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
			p[PAGE]++;
			_exit(good && p[PAGE] == 2 ? 0 : 1);
		}
		p[0] = p[bytes - 1] = 2;
		CLAIM(waitpid(child, &status, 0) == child && status == 0);
	}
	/* The same for the rest where the program has unmapped a part. */
	CLAIM(munmap(p + 4 * PAGE, PAGE) == 0);
	pid_t child = fork();
	CLAIM(child >= 0);
	if (child == 0) {
		p[0]++;
		p[bytes - 1]++;
		_exit(p[0] == 3 && p[bytes - 1] == 3 ? 0 : 1);
	}
	CLAIM(waitpid(child, &status, 0) == child && status == 0 && p[0] == 2 && p[bytes - 1] == 2);
	CHECK(cuMemHostUnregister(p)); /* memory without access permissions moves, too */
	CLAIM(mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	CLAIM(p[PAGE] == 1 && p[2 * PAGE] == 1 && p[0] == 2);
	CLAIM(munmap(p, bytes) == 0);
}

/* Fork handlers take locks that other threads hold around copies. */
static pthread_mutex_t programs = PTHREAD_MUTEX_INITIALIZER;
static CUdeviceptr target;

static void take_lock(void) { pthread_mutex_lock(&programs); }
static void let_lock_go(void) { pthread_mutex_unlock(&programs); }

static void *copy_with_lock(void *unused)
{
	uint32_t v = 1;
	CHECK(cuCtxSetCurrent(context));
	while (!stop) {
		take_lock();
		CHECK(cuMemcpyHtoD(target, &v, 4));
		let_lock_go();
	}
	return unused;
}

/* A thread that is cancelled during the call keeps no lock. */
static void *be_cancelled(void *p)
{
	CHECK(cuCtxSetCurrent(context));
	pthread_cancel(pthread_self());
	CHECK(cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostUnregister(p));
	pthread_testcancel();
	return NULL;
}

static void locks(void)
{
	pthread_t thread;
	void *p = own_pages(PAGE), *result;
	CHECK(cuMemAlloc(&target, 4096));
	CLAIM(pthread_create(&thread, NULL, be_cancelled, p) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	CHECK(cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	CLAIM(pthread_atfork(take_lock, let_lock_go, let_lock_go) == 0);
	CLAIM(pthread_create(&thread, NULL, copy_with_lock, NULL) == 0);
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		CLAIM(child >= 0);
		if (child == 0)
			_exit(0);
		CLAIM(waitpid(child, NULL, 0) == child);
	}
	stop = true;
	pthread_join(thread, NULL);
}

static void forbid_userfaultfd(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = rules};
	CLAIM(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *stay(void *unused)
{
	while (!stop)
		usleep(1000);
	return unused;
}

/* Pages that can't be moved back, at addresses that the program then uses for other pages. */
static void left(void)
{
	uint32_t *p = own_pages(MIB), got = 0;
	pthread_t thread;
	bool checked = dlsym(RTLD_DEFAULT, "__asan_init") != NULL; /* its own thread may be there */
	forbid_userfaultfd();
	CHECK(cuMemAlloc(&target, 4096));
	memset(p, 1, MIB);
	CUresult r = cuMemHostRegister(p, MIB, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (checked && r == CUDA_ERROR_NOT_SUPPORTED)
		return;
	CHECK(r);
	CLAIM(pthread_create(&thread, NULL, stay, NULL) == 0);
	CHECK(cuMemHostUnregister(p));
	CLAIM(p[0] == 0x01010101 && munmap(p, MIB) == 0);
	uint32_t *q = mmap(p, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CLAIM(q == p);
	q[0] = 7;
	CHECK(cuMemcpyHtoD(target, q, 4));
	CHECK(cuMemcpyDtoH(&got, target, 4));
	CLAIM(got == 7);
	CHECK(cuMemsetD32(target, 9, 1));
	CHECK(cuMemcpyDtoH(q, target, 4));
	CLAIM(q[0] == 9);
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister(q, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	stop = true;
	pthread_join(thread, NULL);
	/* All of the arena is free again. */
	for (int i = 0; i < 3; i++) {
		CHECK(cuMemHostRegister(q, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
		CLAIM(q[0] == 9);
		use(q, device_of(q));
		q[0] = 9;
		CHECK(cuMemHostUnregister(q));
	}
}

/* Memory counts as registered until the call that unregisters it returns. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_gate(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

static void *unregister(void *p)
{
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemHostUnregister(p));
	return NULL;
}

static void leaving(void)
{
	static const unsigned flags[] = {0, CU_MEMHOSTREGISTER_DEVICEMAP};
	uint8_t *p = own_pages(3 * MIB);
	pthread_t thread;
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		CHECK(cuMemHostRegister(p + MIB, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
		pthread_mutex_lock(&gate);
		CHECK(cuLaunchHostFunc(stream, wait_at_gate, NULL)); /* the work that the other thread waits for */
		CLAIM(pthread_create(&thread, NULL, unregister, p + MIB) == 0);
		CUdeviceptr d;
		while (cuMemHostGetDevicePointer(&d, p + MIB, 0) == CUDA_SUCCESS)
			usleep(1000);
		EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(p + MIB, MIB, flags[i]));
		EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(p + 2 * MIB - PAGE, 2 * PAGE, flags[i]));
		CHECK(cuMemHostRegister(p + 2 * MIB, MIB, flags[i])); /* adjacent memory */
		EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(p + MIB)); /* the other thread is unregistering it */
		pthread_mutex_unlock(&gate);
		pthread_join(thread, NULL);
		CHECK(cuMemHostUnregister(p + 2 * MIB));
		CHECK(cuMemHostRegister(p + MIB, MIB, flags[i]));
		use((uint32_t *)(p + MIB), device_of(p + MIB));
		CHECK(cuMemHostUnregister(p + MIB));
	}
}

/* Where a process has reached its limit of mappings, memory is mapped for kernels, or the call returns an error. */
static void crowded(void)
{
	enum { Most = 70000 };
	int fd = memfd_create("short", 0);
	CLAIM(fd >= 0 && ftruncate(fd, (off_t)PAGE) == 0);
	void *behind = pages(2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(behind, 2 * PAGE, CU_MEMHOSTREGISTER_DEVICEMAP)); /* the second page is beyond the file's end */
	if (dlsym(RTLD_DEFAULT, "__asan_init"))
		return;
	uint8_t *many = pages(Most * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	uint32_t *p = (uint32_t *)(own_pages(3 * PAGE) + PAGE);
	p[0] = p[PAGE / 4 - 1] = 5;
	size_t at = 0, mapped = 0;
	while (at < Most && mprotect(many + at * PAGE, PAGE, PROT_READ) == 0)
		at += 2;
	for (int i = 0; i < 16 && at > 0; i++, at -= 2) {
		CUresult r = cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP);
		CLAIM(p[PAGE / 4 - 1] == 5);
		if (r == CUDA_SUCCESS) {
			use(p, device_of(p));
			CHECK(cuMemHostUnregister(p));
			mapped++;
		}
		CLAIM(mprotect(many + (at - 2) * PAGE, PAGE, PROT_NONE) == 0);
	}
	CLAIM(munmap(many, Most * PAGE) == 0 && mapped > 0);
	CHECK(cuMemHostRegister(p, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
	use(p, device_of(p));
}

/* Where devices cannot access host memory, the attributes report this, and memory can be registered all the same. */
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
	} parts[] = {
		{"mapped", mapped}, {"written", written}, {"forked", forked}, {"refused", refused}, {"snapshot", snapshot}, {"locks", locks},
		{"left", left}, {"leaving", leaving}, {"crowded", crowded}, {"absent", absent},
	};
	start();
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: registered PART\n");
	return 2;
}
