/* probe NAME measures behaviour of a driver that only NVIDIA's driver with a device has. No test checks the answers: tools/visit
 * keeps them. Calls that could end the process run in a child. */
#define _GNU_SOURCE
#define PEGASUS_CUDA_ALL
#include "driver.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* --- PTX of old versions and targets, as ffmpeg and GCC have it --- */

static void targets(void)
{
	static const struct { const char *version, *target; } of[] = {
		{"3.2", "sm_30"}, {"3.2", "sm_20"}, {"4.0", "sm_30"}, {"6.0", "sm_30"}, {"6.0", "sm_35"}, {"6.3", "sm_50"}, {"6.0", "sm_70"},
		{"7.0", "sm_52"}, {"7.8", "sm_75"}, {"8.0", "sm_90"}, {"8.0", "sm_90a"}, {"8.4", "sm_90"}, {"8.7", "sm_100"}, {"9.0", "sm_75"}, {"9.9", "sm_75"},
	};
	begin();
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char text[400], name[80];
		CUmodule m;
		snprintf(text, sizeof text, ".version %s\n.target %s\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n\tret;\n}\n", of[i].version, of[i].target);
		snprintf(name, sizeof name, "load PTX %s for %s", of[i].version, of[i].target);
		CUresult r = CALL(cuModuleLoadData, &m, text);
		answer(name, r);
		if (r == CUDA_SUCCESS)
			MUST(cuModuleUnload, m);
	}
}

/* --- how the linear filter rounds integers --- */

static const char linear_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry look(.param .u64 handle, .param .u64 out, .param .f32 first, .param .f32 step)\n{\n"
	"	.reg .u64 %h, %o, %n;\n	.reg .u32 %t, %a, %b, %c, %d;\n	.reg .f32 %x, %y, %s;\n"
	"	ld.param.u64 %h, [handle];\n	ld.param.u64 %o, [out];\n	ld.param.f32 %x, [first];\n	ld.param.f32 %s, [step];\n"
	"	mov.u32 %t, %tid.x;\n	cvt.rn.f32.u32 %y, %t;\n	fma.rn.f32 %x, %y, %s, %x;\n	mov.f32 %y, 0f3F000000;\n"
	"	tex.2d.v4.u32.f32 {%a, %b, %c, %d}, [%h, {%x, %y}];\n"
	"	mul.wide.u32 %n, %t, 4;\n	add.u64 %o, %o, %n;\n	st.global.u32 [%o], %a;\n	ret;\n}\n";

static void list(const char *name, const uint32_t *v, int n)
{
	printf("{\"answer\": \"%s\", \"value\": [", name);
	for (int i = 0; i < n; i++)
		printf("%s%u", i ? ", " : "", v[i]);
	puts("]}");
	fflush(stdout);
}

static void linear(void)
{
	enum { WIDTH = 64, POINTS = 1024 };
	static uint32_t got[POINTS];
	CUmodule m;
	CUfunction f;
	CUdeviceptr texels, out;
	begin();
	MUST(cuModuleLoadData, &m, linear_ptx);
	MUST(cuModuleGetFunction, &f, m, "look");
	MUST(cuMemAlloc_v2, &out, sizeof got);
	MUST(cuMemAlloc_v2, &texels, 4096);
	for (int wide = 0; wide < 2; wide++) {
		unsigned char row[WIDTH * 2];
		for (int i = 0; i < WIDTH; i++) { /* steps of several heights, up and down */
			unsigned v = i % 2 ? (unsigned)i * (wide ? 1031 : 4) : (unsigned)(WIDTH - i) / 3;
			if (wide)
				memcpy(row + 2 * i, &(uint16_t){(uint16_t)v}, 2);
			else
				row[i] = (unsigned char)v;
		}
		MUST(cuMemcpyHtoD_v2, texels, row, sizeof row);
		CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_PITCH2D};
		r.res.pitch2D.devPtr = texels;
		r.res.pitch2D.format = wide ? CU_AD_FORMAT_UNSIGNED_INT16 : CU_AD_FORMAT_UNSIGNED_INT8;
		r.res.pitch2D.numChannels = 1;
		r.res.pitch2D.width = WIDTH;
		r.res.pitch2D.height = 1;
		r.res.pitch2D.pitchInBytes = 512;
		CUDA_TEXTURE_DESC d = {.filterMode = CU_TR_FILTER_MODE_LINEAR, .flags = CU_TRSF_READ_AS_INTEGER};
		CUtexObject t;
		CUresult made = CALL(cuTexObjectCreate, &t, &r, &d, NULL);
		answer(wide ? "make a texture of 16 bits" : "make a texture of 8 bits", made);
		if (made != CUDA_SUCCESS)
			continue;
		float first = 0.25f, step = 1.0f / 64 + 1.0f / 1024;
		void *args[] = {&t, &out, &first, &step};
		MUST(cuLaunchKernel, f, 1, 1, 1, POINTS, 1, 1, 0, NULL, args, NULL);
		CUresult ended = CALL(cuMemcpyDtoH_v2, got, out, sizeof got);
		answer(wide ? "read it, 16 bits" : "read it, 8 bits", ended);
		if (ended == CUDA_SUCCESS)
			list(wide ? "what linear filtering makes of integers of 16 bits" : "what linear filtering makes of integers of 8 bits", got, POINTS);
		CALL(cuTexObjectDestroy, t);
	}
}

/* --- results of cuGetProcAddress: NAME VERSION FLAGS on each line of stdin --- */

static void resolver(void)
{
	char name[128];
	int version;
	unsigned long long flags;
	__typeof__(&cuGetProcAddress_v2) ask = FIND(cuGetProcAddress_v2);
	if (!ask) {
		puts("{\"skip\": \"the driver has no cuGetProcAddress_v2\"}");
		return;
	}
	begin();
	while (scanf("%127s %d %llu", name, &version, &flags) == 3) {
		void *p = NULL;
		CUdriverProcAddressQueryResult status = 0;
		CUresult r = ask(name, &p, version, flags, &status);
		Dl_info about;
		const char *symbol = p ? "?" : "-"; /* "?": an address that none of the exported symbols has */
		char perhaps[160];
		if (p && dladdr(p, &about) && about.dli_sname && find(about.dli_sname) == p)
			symbol = about.dli_sname;
		for (int v = 9; p && *symbol == '?' && v > 0; v--)
			for (int own = 0; own < 3; own++) {
				const char *ending = (const char *[]){"", "_ptsz", "_ptds"}[own];
				if (v > 1)
					snprintf(perhaps, sizeof perhaps, "%s_v%d%s", name, v, ending);
				else
					snprintf(perhaps, sizeof perhaps, "%s%s", name, ending);
				if (find(perhaps) == p)
					symbol = perhaps;
			}
		printf("%s %d %llu %d %d %s\n", name, version, flags, r, status, symbol);
	}
}

/* --- registered host memory --- */

static void *mapped(const char *how, size_t bytes)
{
	void *at = (void *)0x500000000000;
	int fd = -1, flags = MAP_SHARED;
	if (!strcmp(how, "private"))
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
	else if (!strcmp(how, "memfd"))
		fd = memfd_create("probe", 0);
	else if (!strcmp(how, "tmpfs"))
		fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	else
		fd = open(".", O_TMPFILE | O_RDWR, 0600);
	if (fd >= 0 && ftruncate(fd, (off_t)bytes))
		return MAP_FAILED;
	if (fd < 0 && flags == MAP_SHARED)
		return MAP_FAILED;
	void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0);
	if (fd >= 0)
		close(fd);
	return p;
}

static void registering(void)
{
	static const char *const ways[] = {"private", "memfd", "tmpfs", "file"};
	size_t sizes[] = {64 * MIB, visiting() ? 1024 * MIB : 128 * MIB};
	begin();
	for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
		for (size_t s = 0; s < 2; s++) {
			char name[120];
			struct rusage before, after;
			void *p = mapped(ways[w], sizes[s]);
			if (p == MAP_FAILED)
				continue;
			getrusage(RUSAGE_SELF, &before);
			int64_t from = now();
			CUresult r = CALL(cuMemHostRegister_v2, p, sizes[s], CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
			double took = (double)(now() - from) / 1e6;
			getrusage(RUSAGE_SELF, &after);
			snprintf(name, sizeof name, "register %zu MiB, %s", sizes[s] / MIB, ways[w]);
			answer(name, r);
			if (r == CUDA_SUCCESS) {
				figure(name, took, "ms");
				snprintf(name, sizeof name, "memory taken by %zu MiB, %s", sizes[s] / MIB, ways[w]);
				figure(name, (double)(after.ru_maxrss - before.ru_maxrss) / 1024, "MiB");
				CUdeviceptr at = 0;
				CALL(cuMemHostGetDevicePointer_v2, &at, p, 0);
				snprintf(name, sizeof name, "the device has %zu MiB, %s, at the same address", sizes[s] / MIB, ways[w]);
				answer(name, at == (CUdeviceptr)p);
				from = now();
				MUST(cuMemHostUnregister, p);
				snprintf(name, sizeof name, "unregister %zu MiB, %s", sizes[s] / MIB, ways[w]);
				figure(name, (double)(now() - from) / 1e6, "ms");
			}
			munmap(p, sizes[s]);
		}
}

/* --- requested addresses --- */

static void reserving(void)
{
	enum { TIMES = 100 };
	int granted = 0, refused = 0;
	begin();
	if (!FIND(cuMemAddressReserve)) {
		puts("{\"skip\": \"the driver has no cuMemAddressReserve\"}");
		return;
	}
	for (int i = 0; i < TIMES; i++) {
		size_t bytes = 128 * MIB;
		void *want = (void *)(0x580000000000 + (uintptr_t)i * 0x100000000);
		if (mmap(want, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != want)
			continue;
		munmap(want, bytes);
		CUdeviceptr got = 0;
		CUresult r = CALL(cuMemAddressReserve, &got, bytes, 0, (CUdeviceptr)want, 0);
		if (i == 0)
			answer("reserve an address that was just given up", r);
		refused += r != CUDA_SUCCESS;
		granted += r == CUDA_SUCCESS && got == (CUdeviceptr)want;
		if (r == CUDA_SUCCESS)
			CALL(cuMemAddressFree, got, bytes);
	}
	answer("of 100, at the address that was asked for", granted);
	answer("of 100, refused", refused);
}

/* --- how a held stream goes on --- */

static void CUDA_CB note(void *at) { __atomic_store_n((int64_t *)at, now(), __ATOMIC_RELEASE); }

static void waiting(void)
{
	enum { TIMES = 500 };
	static double took[TIMES];
	CUstream s;
	CUevent e;
	unsigned *word;
	CUdeviceptr at;
	begin();
	MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	MUST(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
	MUST(cuMemHostAlloc, (void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
	MUST(cuMemHostGetDevicePointer_v2, &at, word, 0);
	int n = visiting() ? TIMES : 50;
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	CUresult r = CALL(cuStreamWaitValue32_v2, s, at, 1, CU_STREAM_WAIT_VALUE_EQ);
	answer("a stream waits for a word", r);
	for (int i = 0; r == CUDA_SUCCESS && i < n; i++) {
		__atomic_store_n(word, 0, __ATOMIC_RELEASE);
		MUST(cuStreamWaitValue32_v2, s, at, 1, CU_STREAM_WAIT_VALUE_EQ);
		MUST(cuEventRecord, e, s);
		usleep(200);
		int64_t from = now();
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
		while (CALL(cuEventQuery, e) == CUDA_ERROR_NOT_READY)
			;
		took[i] = (double)(now() - from) / 1e3;
	}
	if (r == CUDA_SUCCESS)
		times("from a word's write to what waited for it", took, (size_t)n, "us");
	int64_t *when = calloc(1, sizeof *when);
	for (int i = 0; i < n; i++) {
		*when = 0;
		int64_t from = now();
		MUST(cuLaunchHostFunc, s, note, when);
		while (!__atomic_load_n(when, __ATOMIC_ACQUIRE))
			;
		took[i] = (double)(*when - from) / 1e3;
		MUST(cuStreamSynchronize, s);
	}
	times("from a host function's call to its run", took, (size_t)n, "us");
}

/* More streams than the device has queues, all but the last held by a word. */
static void held(void)
{
	enum { STREAMS = 48 };
	CUstream s[STREAMS + 1];
	unsigned *word;
	CUdeviceptr at;
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
	begin();
	CUfunction f = kernel("nothing");
	nothing(f, NULL); /* bringing it to the device may wait for all streams */
	MUST(cuCtxSynchronize);
	MUST(cuMemHostAlloc, (void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
	MUST(cuMemHostGetDevicePointer_v2, &at, word, 0);
	*word = 0;
	int free_until = STREAMS;
	for (int i = 0; i < STREAMS; i++) {
		MUST(cuStreamCreate, &s[i], CU_STREAM_NON_BLOCKING);
		CUresult r = CALL(cuStreamWaitValue32_v2, s[i], at, 1, CU_STREAM_WAIT_VALUE_EQ);
		if (r != CUDA_SUCCESS) {
			answer("a stream waits for a word", r);
			return;
		}
		MUST(cuStreamCreate, &s[STREAMS], CU_STREAM_NON_BLOCKING);
		nothing(f, s[STREAMS]);
		int64_t end = now() + 200000000;
		CUresult q;
		while ((q = CALL(cuStreamQuery, s[STREAMS])) == CUDA_ERROR_NOT_READY && now() < end)
			;
		CALL(cuStreamDestroy_v2, s[STREAMS]);
		if (q == CUDA_ERROR_NOT_READY) {
			free_until = i;
			break;
		}
	}
	answer("streams that may be held before one that isn't is, too (at most 48 were tried)", free_until);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	MUST(cuCtxSynchronize);
}

/* --- results of misuse, each in a child --- */

static CUstream stream;
static CUdeviceptr memory;

static void CUDA_CB ignore(void *nothing) { (void)nothing; }

#define MISUSE(name, ...) static CUresult name(void) { __VA_ARGS__ }
MISUSE(destroyed_stream, MUST(cuStreamDestroy_v2, stream); return CALL(cuStreamSynchronize, stream);)
MISUSE(stream_twice, MUST(cuStreamDestroy_v2, stream); return CALL(cuStreamDestroy_v2, stream);)
MISUSE(destroyed_event, CUevent e; MUST(cuEventCreate, &e, 0); MUST(cuEventDestroy_v2, e); return CALL(cuEventRecord, e, stream);)
MISUSE(event_never_recorded, CUevent e; MUST(cuEventCreate, &e, 0); return CALL(cuEventSynchronize, e);)
MISUSE(elapsed_never_recorded, CUevent e; float ms; MUST(cuEventCreate, &e, 0); return CALL(cuEventElapsedTime, &ms, e, e);)
MISUSE(elapsed_untimed, CUevent e; float ms; MUST(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING); MUST(cuEventRecord, e, stream); MUST(cuEventSynchronize, e); return CALL(cuEventElapsedTime, &ms, e, e);)
MISUSE(free_twice, MUST(cuMemFree_v2, memory); return CALL(cuMemFree_v2, memory);)
MISUSE(free_within, return CALL(cuMemFree_v2, memory + 512);)
MISUSE(free_null, return CALL(cuMemFree_v2, 0);)
MISUSE(free_strange, return CALL(cuMemFree_v2, 0x123456789000);)
MISUSE(alloc_nothing, return CALL(cuMemAlloc_v2, &memory, 0);)
MISUSE(alloc_too_much, return CALL(cuMemAlloc_v2, &memory, (size_t)1 << 50);)
MISUSE(copy_beyond, char *b = calloc(1, 8192); return CALL(cuMemcpyHtoD_v2, memory, b, 8192);)
MISUSE(copy_far_beyond, char *b = calloc(1, 64 * MIB); return CALL(cuMemcpyHtoD_v2, memory, b, 64 * MIB);)
MISUSE(copy_strange, char b[16] = {0}; return CALL(cuMemcpyHtoD_v2, 0x123456789000, b, 16);)
MISUSE(fill_unaligned, return CALL(cuMemsetD32_v2, memory + 2, 0, 1);)
MISUSE(module_twice, CUmodule m; MUST(cuModuleLoadData, &m, kernels); MUST(cuModuleUnload, m); return CALL(cuModuleUnload, m);)
MISUSE(function_missing, CUmodule m; CUfunction f; MUST(cuModuleLoadData, &m, kernels); return CALL(cuModuleGetFunction, &f, m, "missing");)
MISUSE(function_of_unloaded, CUmodule m; CUfunction f; MUST(cuModuleLoadData, &m, kernels); MUST(cuModuleGetFunction, &f, m, "nothing"); MUST(cuModuleUnload, m); return nothing(f, stream);)
MISUSE(global_missing, CUmodule m; CUdeviceptr p; size_t n; MUST(cuModuleLoadData, &m, kernels); return CALL(cuModuleGetGlobal_v2, &p, &n, m, "missing");)
MISUSE(not_an_image, CUmodule m; return CALL(cuModuleLoadData, &m, "\1\2\3");)
MISUSE(not_ptx, CUmodule m; return CALL(cuModuleLoadData, &m, ".version 6.0\n.target sm_50\n.address_size 64\nnonsense\n");)
MISUSE(no_grid, return CALL(cuLaunchKernel, kernel("nothing"), 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);)
MISUSE(no_block, return CALL(cuLaunchKernel, kernel("nothing"), 1, 1, 1, 0, 1, 1, 0, stream, NULL, NULL);)
MISUSE(big_block, return CALL(cuLaunchKernel, kernel("nothing"), 1, 1, 1, 2048, 1, 1, 0, stream, NULL, NULL);)
MISUSE(deep_block, return CALL(cuLaunchKernel, kernel("nothing"), 1, 1, 1, 1, 1, 128, 0, stream, NULL, NULL);)
MISUSE(high_grid, return CALL(cuLaunchKernel, kernel("nothing"), 1, 70000, 1, 1, 1, 1, 0, stream, NULL, NULL);)
MISUSE(much_shared, return CALL(cuLaunchKernel, kernel("nothing"), 1, 1, 1, 1, 1, 1, 1 << 20, stream, NULL, NULL);)
MISUSE(some_shared, return CALL(cuLaunchKernel, kernel("nothing"), 1, 1, 1, 1, 1, 1, 60000, stream, NULL, NULL);)
MISUSE(no_arguments, return CALL(cuLaunchKernel, kernel("spin"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);)
MISUSE(both_arguments, void *a[] = {&memory, &memory}; size_t n = 12; void *x[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, a, CU_LAUNCH_PARAM_BUFFER_SIZE, &n, CU_LAUNCH_PARAM_END}; return CALL(cuLaunchKernel, kernel("spin"), 1, 1, 1, 1, 1, 1, 0, stream, a, x);)
MISUSE(many_meet, return CALL(cuLaunchCooperativeKernel, kernel("nothing"), 1 << 20, 1, 1, 32, 1, 1, 0, stream, NULL);)
MISUSE(fault, spin(kernel("spin"), stream, 0x123456789000, 1); return CALL(cuStreamSynchronize, stream);)
MISUSE(after_fault, fault(); return CALL(cuMemAlloc_v2, &memory, 16);)
MISUSE(free_after_fault, fault(); return CALL(cuMemFree_v2, memory);)
MISUSE(destroy_after_fault, fault(); return CALL(cuCtxDestroy_v2, context);)
MISUSE(again_after_fault, fault(); CALL(cuCtxDestroy_v2, context); return CALL(cuCtxCreate_v2, &context, 0, device);)
MISUSE(other_context, CUcontext c; MUST(cuCtxCreate_v2, &c, 0, device); return CALL(cuStreamSynchronize, stream);)
MISUSE(launch_other_context, CUfunction f = kernel("nothing"); CUcontext c; CUstream s; MUST(cuCtxCreate_v2, &c, 0, device); MUST(cuStreamCreate, &s, 0); return nothing(f, s);)
MISUSE(record_other_context, CUcontext c; CUevent e; MUST(cuCtxCreate_v2, &c, 0, device); MUST(cuEventCreate, &e, 0); return CALL(cuEventRecord, e, stream);)
MISUSE(no_context, CUcontext c; MUST(cuCtxPopCurrent_v2, &c); return CALL(cuMemAlloc_v2, &memory, 16);)
MISUSE(no_context_device, CUcontext c; CUdevice d; MUST(cuCtxPopCurrent_v2, &c); return CALL(cuCtxGetDevice, &d);)
MISUSE(pop_nothing, CUcontext c; MUST(cuCtxPopCurrent_v2, &c); return CALL(cuCtxPopCurrent_v2, &c);)
MISUSE(destroyed_context, MUST(cuCtxDestroy_v2, context); return CALL(cuCtxSynchronize);)
MISUSE(destroyed_context_set, MUST(cuCtxDestroy_v2, context); return CALL(cuCtxSetCurrent, context);)
MISUSE(device_missing, CUdevice d; return CALL(cuDeviceGet, &d, 99);)
MISUSE(attribute_missing, int v; return CALL(cuDeviceGetAttribute, &v, (CUdevice_attribute)5000, device);)
MISUSE(host_function_null, return CALL(cuLaunchHostFunc, stream, NULL, NULL);)
MISUSE(host_function_after_fault, fault(); return CALL(cuLaunchHostFunc, stream, ignore, NULL);)
MISUSE(address_null, return CALL(cuMemAlloc_v2, NULL, 16);)
MISUSE(export_table_unknown, const void *t; CUuuid u = {{1}}; return CALL(cuGetExportTable, &t, &u);)
MISUSE(init_flags, return CALL(cuInit, 1);)
MISUSE(limit_unknown, return CALL(cuCtxSetLimit, (CUlimit)99, 1);)
MISUSE(priority_wild, CUstream s; return CALL(cuStreamCreateWithPriority, &s, 0, -1000);)
MISUSE(register_twice, char *p = aligned_alloc(4096, 8192); MUST(cuMemHostRegister_v2, p, 8192, 0); return CALL(cuMemHostRegister_v2, p, 8192, 0);)
MISUSE(unregister_strange, return CALL(cuMemHostUnregister, &memory);)

static const struct { const char *name; CUresult (*call)(void); } misuses[] = {
#define M(name) {#name, name}
	M(destroyed_stream), M(stream_twice), M(destroyed_event), M(event_never_recorded), M(elapsed_never_recorded), M(elapsed_untimed), M(free_twice),
	M(free_within), M(free_null), M(free_strange), M(alloc_nothing), M(alloc_too_much), M(copy_beyond), M(copy_far_beyond), M(copy_strange),
	M(fill_unaligned), M(module_twice), M(function_missing), M(function_of_unloaded), M(global_missing), M(not_an_image), M(not_ptx), M(no_grid),
	M(no_block), M(big_block), M(deep_block), M(high_grid), M(much_shared), M(some_shared), M(no_arguments), M(both_arguments), M(many_meet), M(fault),
	M(after_fault), M(free_after_fault), M(destroy_after_fault), M(again_after_fault), M(other_context), M(launch_other_context),
	M(record_other_context), M(no_context), M(no_context_device), M(pop_nothing), M(destroyed_context), M(destroyed_context_set), M(device_missing),
	M(attribute_missing), M(host_function_null), M(host_function_after_fault), M(address_null), M(export_table_unknown), M(init_flags),
	M(limit_unknown), M(priority_wild), M(register_twice), M(unregister_strange),
};

/* A result, or minus the signal that ended the child, or -100 if it took too long. */
static int in_child(CUresult (*call)(void))
{
	int ends[2], result = -99;
	if (pipe(ends))
		exit(1);
	pid_t child = fork();
	if (child == 0) {
		alarm(15);
		begin();
		MUST(cuStreamCreate, &stream, 0);
		MUST(cuMemAlloc_v2, &memory, 4096);
		int r = call();
		if (write(ends[1], &r, sizeof r) != sizeof r)
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	ssize_t got = read(ends[0], &result, sizeof result);
	close(ends[0]);
	int status;
	waitpid(child, &status, 0);
	if (got == sizeof result)
		return result;
	return !WIFSIGNALED(status) ? -99 : WTERMSIG(status) == SIGALRM ? -100 : -WTERMSIG(status);
}

static void misuse(void)
{
	for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++)
		answer(misuses[i].name, in_child(misuses[i].call));
}

/* --- times by events, and the cost of events --- */

static void events(void)
{
	enum { TIMES = 400 };
	static double gaps[TIMES], apart[TIMES], plain[TIMES], timed[TIMES];
	CUevent a, b;
	CUdeviceptr at;
	CUstream s;
	begin();
	CUfunction empty = kernel("nothing"), f = kernel("spin");
	MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	MUST(cuEventCreate, &a, CU_EVENT_BLOCKING_SYNC);
	MUST(cuEventCreate, &b, CU_EVENT_BLOCKING_SYNC);
	MUST(cuMemAlloc_v2, &at, 4096);
	int n = visiting() ? TIMES : 60;
	for (int i = 0; i < n; i++) {
		float ms;
		MUST(cuEventRecord, a, s);
		MUST(cuEventRecord, b, s);
		MUST(cuEventSynchronize, b);
		MUST(cuEventElapsedTime, &ms, a, b);
		gaps[i] = ms * 1e3;
		MUST(cuEventRecord, a, s);
		nothing(empty, s);
		MUST(cuEventRecord, b, s);
		MUST(cuEventSynchronize, b);
		MUST(cuEventElapsedTime, &ms, a, b);
		apart[i] = ms * 1e3;
	}
	times("between two events with nothing between", gaps, (size_t)n, "us");
	times("between two events round an empty kernel", apart, (size_t)n, "us");
	for (int i = 0; i < n; i++) {
		int64_t from = now();
		for (int k = 0; k < 20; k++)
			nothing(empty, s);
		plain[i] = (double)(now() - from) / 20e3;
		MUST(cuStreamSynchronize, s);
		from = now();
		for (int k = 0; k < 20; k++) {
			MUST(cuEventRecord, a, s);
			nothing(empty, s);
			MUST(cuEventRecord, b, s);
		}
		timed[i] = (double)(now() - from) / 20e3;
		MUST(cuStreamSynchronize, s);
	}
	times("a launch", plain, (size_t)n, "us");
	times("a launch between two events", timed, (size_t)n, "us");

	/* A wait must cost no processor time. */
	unsigned steps = steps_of(f, at, visiting() ? 200 : 30);
	struct timespec c0, c1;
	MUST(cuEventRecord, a, s);
	spin(f, s, at, steps);
	MUST(cuEventRecord, b, s);
	int64_t from = now();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c0);
	MUST(cuEventSynchronize, b);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c1);
	double waited = (double)(now() - from);
	figure("processor time while waiting for an event, part of the wait",
		((double)(c1.tv_sec - c0.tv_sec) * 1e9 + (double)(c1.tv_nsec - c0.tv_nsec)) / waited, "");
	float ms;
	MUST(cuEventElapsedTime, &ms, a, b);
	figure("a kernel by events, part of what the host saw", ms * 1e6 / waited, "");
}

/* --- the end of a process whose kernel runs --- */

static void killed(void)
{
	int ends[2];
	char ready;
	if (pipe(ends))
		exit(1);
	pid_t child = fork();
	if (child == 0) {
		begin();
		CUfunction f = kernel("spin");
		CUdeviceptr at;
		MUST(cuMemAlloc_v2, &at, 4096);
		unsigned steps = steps_of(f, at, visiting() ? 20000 : 2000);
		spin(f, NULL, at, steps);
		usleep(100000);
		if (write(ends[1], "r", 1) != 1)
			_exit(1);
		CALL(cuCtxSynchronize);
		_exit(0);
	}
	close(ends[1]);
	if (read(ends[0], &ready, 1) != 1)
		exit(1);
	int64_t from = now();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	figure("a killed process whose kernel runs is gone after", (double)(now() - from) / 1e6, "ms");
	begin();
	nothing(kernel("nothing"), NULL);
	MUST(cuCtxSynchronize);
	figure("another's first kernel has ended after", (double)(now() - from) / 1e6, "ms");
}

/* --- the cost of switching between processes --- */

/* Two processes keep the device busy with kernels of a length: how many fewer kernels do they complete than one process? */
static int kernels_in(double ms, double seconds, int out)
{
	CUdeviceptr at;
	begin();
	CUfunction f = kernel("spin");
	MUST(cuMemAlloc_v2, &at, 4096);
	unsigned steps = steps_of(f, at, ms);
	int n = 0;
	if (write(out, "r", 1) != 1)
		exit(1);
	usleep(300000);
	for (int64_t end = now() + (int64_t)(seconds * 1e9); now() < end; n += 4) {
		for (int i = 0; i < 4; i++)
			spin(f, NULL, at, steps);
		MUST(cuCtxSynchronize);
	}
	return n;
}

static double rate(int processes, double ms, double seconds)
{
	int ends[2], all = 0;
	char ready;
	if (pipe(ends))
		exit(1);
	for (int i = 0; i < processes; i++) {
		if (fork() == 0) {
			int n = kernels_in(ms, seconds, ends[1]);
			if (write(ends[1], &n, sizeof n) != sizeof n)
				_exit(1);
			_exit(0);
		}
		if (read(ends[0], &ready, 1) != 1) /* one after the other finds out how long its kernels are */
			exit(1);
		if (i + 1 < processes)
			usleep(1000);
	}
	for (int i = 0; i < processes; i++) {
		int n = 0;
		if (read(ends[0], &n, sizeof n) != sizeof n)
			exit(1);
		all += n;
		wait(NULL);
	}
	return all / seconds;
}

static void switching(void)
{
	double seconds = visiting() ? 2 : 0.5;
	for (int i = 0; i < 3; i++) {
		double ms = (const double[]){0.1, 1, 5}[i];
		char name[120];
		double one = rate(1, ms, seconds), two = rate(2, ms, seconds);
		snprintf(name, sizeof name, "kernels of %g ms a second, one process", ms);
		figure(name, one, "1/s");
		snprintf(name, sizeof name, "kernels of %g ms a second, two processes together", ms);
		figure(name, two, "1/s");
	}
}

/* --- the device --- */

static void attributes(void)
{
	begin();
	char text[256];
	int version = 0;
	size_t total = 0, left = 0;
	MUST(cuDriverGetVersion, &version);
	answer("version of the driver", version);
	MUST(cuDeviceGetName, text, sizeof text, device);
	printf("{\"answer\": \"name\", \"value\": \"%s\"}\n", text);
	MUST(cuDeviceTotalMem_v2, &total, device);
	answer("memory", (long long)total);
	MUST(cuMemGetInfo_v2, &left, &total);
	figure("memory taken by a context", (double)(total - left) / MIB, "MiB");
	for (int a = 1; a < 200; a++) {
		int v = 0;
		if (CALL(cuDeviceGetAttribute, &v, (CUdevice_attribute)a, device) != CUDA_SUCCESS)
			continue;
		snprintf(text, sizeof text, "attribute %d", a);
		answer(text, v);
	}
	for (int l = 0; l < 8; l++) {
		size_t v = 0;
		snprintf(text, sizeof text, "limit %d", l);
		if (CALL(cuCtxGetLimit, &v, (CUlimit)l) == CUDA_SUCCESS)
			answer(text, (long long)v);
	}
}

static const struct { const char *name; void (*run)(void); } probes[] = {
	{"attributes", attributes}, {"targets", targets}, {"linear", linear}, {"resolver", resolver}, {"registering", registering}, {"reserving", reserving},
	{"waiting", waiting}, {"held", held}, {"misuse", misuse}, {"events", events}, {"killed", killed}, {"switching", switching},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
		if (argc == 2 && !strcmp(argv[1], probes[i].name)) {
			probes[i].run();
			return 0;
		}
	fprintf(stderr, "usage: probe NAME, which is one of:");
	for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
		fprintf(stderr, " %s", probes[i].name);
	fputc('\n', stderr);
	return 2;
}
