/*
 * Special calls of the recorder: images have no size, launches have their kernels' parameters, copies that return early
 * deliver their data later, and kernels use host memory of the driver without a call.
 */
#define _GNU_SOURCE
#define PEGASUS_CUDA_ALL
#include "writing.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Compares a name without the suffixes of its version and per-thread variants. */
static int called(const char *name, const char *base)
{
	size_t n = strlen(base);
	if (strncmp(name, base, n))
		return 0;
	const char *rest = name + n;
	if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9')
		rest += 3;
	return !*rest || !strcmp(rest, "_ptsz") || !strcmp(rest, "_ptds");
}

/* Frequent calls with little information, which would take up most of the file. */
int is_unrecorded(const char *name)
{
	return called(name, "cuGetErrorName") || called(name, "cuGetErrorString");
}

/* --- memory that the driver has allocated: memory visible to the host, and images that it linked --- */

enum use { PINNED, LINKED };

static struct made {
	uint64_t at;
	size_t bytes;
	enum use use;
	int used; /* a kernel may write to it */
} made[4096];
static int madeCount;

static struct made *find_made(uint64_t at, enum use use)
{
	for (int i = 0; i < madeCount; i++)
		if (made[i].use == use && at >= made[i].at && at - made[i].at < made[i].bytes)
			return &made[i];
	return NULL;
}

int is_pinned(const void *host) { return find_made((uintptr_t)host, PINNED) != NULL; }

static void add_made(uint64_t at, size_t bytes, enum use use)
{
	if (madeCount < (int)(sizeof made / sizeof *made))
		made[madeCount++] = (struct made){at, bytes, use, 0};
}

static void remove_made(uint64_t at)
{
	for (int i = 0; i < madeCount; i++)
		if (made[i].at == at) {
			made[i] = made[--madeCount];
			return;
		}
}

static size_t bytes_made(const char *name, const uint64_t *a)
{
	if (called(name, "cuMemAlloc") || called(name, "cuMemAllocHost") || called(name, "cuMemHostAlloc") || called(name, "cuMemAllocManaged") ||
		called(name, "cuMemAllocAsync"))
		return (size_t)a[1];
	if (called(name, "cuMemAllocPitch"))
		return *(size_t *)(uintptr_t)a[1] * (size_t)a[3];
	if (called(name, "cuModuleGetGlobal") && a[1])
		return *(size_t *)(uintptr_t)a[1];
	if (called(name, "cuMemAllocFromPoolAsync") || called(name, "cuMemAddressReserve"))
		return (size_t)a[1];
	return 0;
}

/* Writes the size of an allocation: values within it are addresses. */
void put_extent(FILE *to, const char *name, const uint64_t *a, uint64_t at)
{
	size_t bytes = bytes_made(name, a);
	(void)at;
	if (bytes)
		fprintf(to, ":%zu", bytes);
}

/* --- images --- */

static size_t elf_bytes(const unsigned char *p)
{
	const Elf64_Ehdr *e = (const void *)p;
	size_t end = e->e_shoff + (size_t)e->e_shnum * e->e_shentsize, n = e->e_phoff + (size_t)e->e_phnum * e->e_phentsize;
	end = n > end ? n : end;
	for (int i = 0; i < e->e_shnum; i++) {
		const Elf64_Shdr *s = (const void *)(p + e->e_shoff + (size_t)i * e->e_shentsize);
		if (s->sh_type != SHT_NOBITS && s->sh_offset + s->sh_size > end)
			end = s->sh_offset + s->sh_size;
	}
	return end;
}

/* Returns an image, or the one that the wrapper of a fat binary points to. */
static const void *image_of(const void *given, size_t *bytes)
{
	const unsigned char *p = given;
	uint32_t magic;
	memcpy(&magic, p, sizeof magic);
	if (magic == 0x466243b1) {
		memcpy(&p, p + 8, sizeof p);
		memcpy(&magic, p, sizeof magic);
	}
	if (magic == 0xba55ed50) {
		uint16_t head;
		uint64_t body;
		memcpy(&head, p + 6, sizeof head);
		memcpy(&body, p + 8, sizeof body);
		*bytes = head + (size_t)body;
	} else if (!memcmp(p, ELFMAG, SELFMAG))
		*bytes = elf_bytes(p);
	else
		*bytes = strlen((const char *)p) + 1;
	return p;
}

static void put_image(FILE *to, uint64_t at)
{
	size_t bytes;
	if (!at) {
		fputc('-', to);
		return;
	}
	if (find_made(at, LINKED)) { /* linked by the driver: another driver links another image */
		fprintf(to, "@%llx", (unsigned long long)at);
		return;
	}
	const void *p = image_of((const void *)(uintptr_t)at, &bytes);
	put_data(to, p, bytes);
}

/* --- launches --- */

typedef CUresult (*info_call)(void *, size_t, size_t *, size_t *);

static int parameter(const void *f, size_t i, size_t *offset, size_t *size)
{
	info_call of_function = (info_call)real_called("cuFuncGetParamInfo"), of_kernel = (info_call)real_called("cuKernelGetParamInfo");
	return (of_function && of_function((void *)f, i, offset, size) == CUDA_SUCCESS) || (of_kernel && of_kernel((void *)f, i, offset, size) == CUDA_SUCCESS);
}

static void put_parameters(FILE *to, const void *f, void **params)
{
	size_t offset, size;
	if (!params) {
		fputc('-', to);
		return;
	}
	fputc('&', to);
	for (size_t i = 0; parameter(f, i, &offset, &size); i++) {
		if (i)
			fputc(',', to);
		put_hex(to, params[i], size);
	}
}

static void *extra_of(void **extra, size_t *bytes)
{
	void *buffer = NULL;
	*bytes = 0;
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else
			*bytes = *(size_t *)extra[1];
	return buffer;
}

static void put_extra(FILE *to, void **extra)
{
	size_t bytes;
	void *buffer = extra_of(extra, &bytes);
	if (!extra) {
		fputc('-', to);
		return;
	}
	fputc('*', to);
	if (buffer)
		put_hex(to, buffer, bytes);
}

/* Sets the positions of a launch's parameters and extra among its arguments; returns 0 for another call. */
static int launch_at(const char *name, int *params, int *extra)
{
	if (called(name, "cuLaunchKernel")) {
		*params = 9, *extra = 10;
		return 1;
	}
	if (called(name, "cuLaunchCooperativeKernel")) {
		*params = 9, *extra = -1;
		return 1;
	}
	if (called(name, "cuLaunchKernelEx")) {
		*params = 2, *extra = 3;
		return 1;
	}
	return 0;
}

static const void *function_of(const char *name, const uint64_t *a)
{
	return (const void *)(uintptr_t)(called(name, "cuLaunchKernelEx") ? a[1] : a[0]);
}

/* Host memory that a kernel may use contains data that the program has written without a call: records them. */
static void put_used(const unsigned char *p, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 4) {
		uint64_t word;
		memcpy(&word, p + i, sizeof word);
		struct made *m = find_made(word, PINNED);
		if (!m)
			continue;
		m->used = 1;
		char *token;
		size_t n;
		FILE *to = open_memstream(&token, &n);
		put_data(to, (void *)(uintptr_t)m->at, m->bytes);
		fclose(to);
		fprintf(the_file(), "host %s\n", token);
		free(token);
	}
}

void put_prelude(const char *name, const uint64_t *a)
{
	int params, extra;
	if (!launch_at(name, &params, &extra))
		return;
	void **each = (void **)(uintptr_t)a[params];
	size_t offset, size;
	for (size_t i = 0; each && parameter(function_of(name, a), i, &offset, &size); i++)
		put_used(each[i], size);
	if (extra >= 0 && a[extra]) {
		void *buffer = extra_of((void **)(uintptr_t)a[extra], &size);
		if (buffer)
			put_used(buffer, size);
	}
}

static void put_config(FILE *to, const CUlaunchConfig *c)
{
	fputc('=', to);
	put_hex(to, c, sizeof *c);
	if (c->numAttrs && c->attrs) {
		fprintf(to, "+%zu=", offsetof(CUlaunchConfig, attrs));
		put_hex(to, c->attrs, c->numAttrs * sizeof *c->attrs);
	}
}

/* --- copies --- */

/* Host destinations of copies that have returned before completion. */
static struct late {
	const void *at;
	size_t bytes;
	uint64_t stream;
} later[1024];
static int laterCount;

static void put_later(FILE *to, const void *p, size_t bytes, uint64_t stream)
{
	fprintf(to, ">?%llx:%zu", (unsigned long long)(uintptr_t)p, bytes);
	if (is_pinned(p))
		fprintf(to, "@%llx", (unsigned long long)(uintptr_t)p);
	if (laterCount < (int)(sizeof later / sizeof *later))
		later[laterCount++] = (struct late){p, bytes, stream};
}

static int is_async(const char *name) { return strstr(name, "Async") != NULL; }

void put_output(FILE *to, const char *name, const uint64_t *a, const void *p, size_t bytes, CUresult result)
{
	if (result)
		fprintf(to, ">#:%zu", bytes);
	else if (is_async(name))
		put_later(to, p, bytes, called(name, "cuMemcpyAtoHAsync") ? a[4] : a[3]);
	else
		put_digest(to, p, bytes);
}

static int on_device(uint64_t at)
{
	typedef CUresult (*attribute_call)(void *, CUpointer_attribute, CUdeviceptr);
	attribute_call ask = (attribute_call)real_called("cuPointerGetAttribute");
	unsigned type = 0;
	return ask && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

static size_t box_bytes(size_t x, size_t y, size_t z, size_t width, size_t height, size_t depth, size_t pitch, size_t rows)
{
	if (!width || !height || !depth)
		return 0;
	if (!pitch)
		pitch = x + width;
	if (!rows)
		rows = y + height;
	return ((z + depth - 1) * rows + y + height - 1) * pitch + x + width;
}

/* Writes a copy's structure, with the data at each of its host pointers. */
#define PUT_BOX(to, c, depth_, srcZ_, srcRows_, dstZ_, dstRows_, stream)                                                        \
	do {                                                                                                                          \
		fputc('=', to);                                                                                                       \
		put_hex(to, c, sizeof *c);                                                                                            \
		if (c->srcMemoryType == CU_MEMORYTYPE_HOST) {                                                                         \
			fprintf(to, "+%zu", offsetof(__typeof__(*c), srcHost));                                                       \
			put_data(to, c->srcHost, box_bytes(c->srcXInBytes, c->srcY, srcZ_, c->WidthInBytes, c->Height, depth_, c->srcPitch, srcRows_)); \
		}                                                                                                                     \
		if (c->dstMemoryType == CU_MEMORYTYPE_HOST) {                                                                         \
			fprintf(to, "+%zu", offsetof(__typeof__(*c), dstHost));                                                       \
			put_later(to, c->dstHost, box_bytes(c->dstXInBytes, c->dstY, dstZ_, c->WidthInBytes, c->Height, depth_, c->dstPitch, dstRows_), stream); \
		}                                                                                                                     \
	} while (0)

static void put_2d(FILE *to, const CUDA_MEMCPY2D *c, uint64_t stream) { PUT_BOX(to, c, 1, 0, 0, 0, 0, stream); }

static void put_3d(FILE *to, const CUDA_MEMCPY3D *c, uint64_t stream)
{
	PUT_BOX(to, c, c->Depth, c->srcZ, c->srcHeight, c->dstZ, c->dstHeight, stream);
}

/* --- callbacks: the calls within one belong to it --- */

static _Thread_local int inside;

int in_callback(void) { return inside; }

struct callback {
	CUstreamCallback stream;
	CUhostFn host;
	void *data;
};

static void CUDA_CB of_stream(CUstream s, CUresult r, void *of)
{
	struct callback c = *(struct callback *)of;
	free(of);
	inside++;
	c.stream(s, r, c.data);
	inside--;
}

static void CUDA_CB of_host(void *of)
{
	struct callback c = *(struct callback *)of;
	free(of);
	inside++;
	c.host(c.data);
	inside--;
}

void stand_between(const char *name, uint64_t *a)
{
	int host = called(name, "cuLaunchHostFunc");
	if ((!host && !called(name, "cuStreamAddCallback")) || !a[1])
		return;
	struct callback *c = calloc(1, sizeof *c);
	if (!c)
		return;
	c->data = (void *)(uintptr_t)a[2];
	if (host)
		c->host = (CUhostFn)(uintptr_t)a[1];
	else
		c->stream = (CUstreamCallback)(uintptr_t)a[1];
	a[1] = host ? (uintptr_t)of_host : (uintptr_t)of_stream;
	a[2] = (uintptr_t)c;
}

/* --- by name --- */

/* Writes the special form of argument i, if its kind is not sufficient. */
int put_special(FILE *to, const char *name, const uint64_t *a, int i)
{
	int params, extra;
	const void *p = (const void *)(uintptr_t)a[i];
	if (launch_at(name, &params, &extra)) {
		if (i == params)
			put_parameters(to, function_of(name, a), (void **)(uintptr_t)a[i]);
		else if (i == extra)
			put_extra(to, (void **)(uintptr_t)a[i]);
		else if (i == 0 && p && called(name, "cuLaunchKernelEx"))
			put_config(to, p);
		else
			return 0;
		return 1;
	}
	if (called(name, "cuModuleLoadData") || called(name, "cuModuleLoadDataEx") || called(name, "cuModuleLoadFatBinary") || called(name, "cuLibraryLoadData")) {
		if (i == 1)
			put_image(to, a[1]);
		else if (i > 1)
			fputs(i == 2 && called(name, "cuModuleLoadDataEx") ? "0" : called(name, "cuLibraryLoadData") && (i == 4 || i == 7) ? "0" : "-", to);
		return i > 0;
	}
	if (called(name, "cuLinkCreate") && i < 3) { /* the options matter to the compiler only */
		fputs(i ? "-" : "0", to);
		return 1;
	}
	if ((called(name, "cuLinkAddData") && i > 4) || (called(name, "cuLinkAddFile") && i > 2)) {
		fputs(i == (called(name, "cuLinkAddData") ? 5 : 3) ? "0" : "-", to);
		return 1;
	}
	if (p && i == 0 && (called(name, "cuMemcpy2D") || called(name, "cuMemcpy2DUnaligned") || called(name, "cuMemcpy2DAsync"))) {
		put_2d(to, p, a[1]);
		return 1;
	}
	if (p && i == 0 && (called(name, "cuMemcpy3D") || called(name, "cuMemcpy3DAsync"))) {
		put_3d(to, p, a[1]);
		return 1;
	}
	if (called(name, "cuMemRetainAllocationHandle") && i == 1 && p) {
		fprintf(to, "@%llx", (unsigned long long)a[1]);
		return 1;
	}
	if (called(name, "cuMemHostRegister") && i == 0 && p) {
		fprintf(to, "~%llx:%zu", (unsigned long long)a[0], (size_t)a[1]);
		return 1;
	}
	if ((called(name, "cuMemcpy") || called(name, "cuMemcpyAsync")) && i < 2 && !on_device(a[i]) && !is_pinned(p)) {
		if (i)
			put_data(to, p, (size_t)a[2]);
		else
			put_later(to, p, (size_t)a[2], is_async(name) ? a[3] : 0);
		return 1;
	}
	return 0;
}

/* Updates the recorder's state after a call, and replaces function pointers for the program by wrappers. */
void after_call(const char *name, uint64_t *a, CUresult result)
{
	if (result)
		return;
	if (called(name, "cuGetProcAddress") && a[1])
		*(void **)(uintptr_t)a[1] = wrapper_of(*(void **)(uintptr_t)a[1]);
	else if (called(name, "cuMemAllocHost") || called(name, "cuMemHostAlloc") || called(name, "cuMemAllocManaged"))
		add_made(*(uint64_t *)(uintptr_t)a[0], (size_t)a[1], PINNED);
	else if (called(name, "cuMemHostRegister"))
		add_made(a[0], (size_t)a[1], PINNED);
	else if (called(name, "cuMemFreeHost") || called(name, "cuMemFree") || called(name, "cuMemHostUnregister"))
		remove_made(a[0]);
	else if (called(name, "cuLinkComplete"))
		add_made(*(uint64_t *)(uintptr_t)a[1], 1, LINKED);
}

static void put_arrival(const char *what, const void *p, size_t bytes, uint64_t digest)
{
	fprintf(the_file(), "%s %llx %zu %016llx\n", what, (unsigned long long)(uintptr_t)p, bytes, (unsigned long long)digest);
}

/* The program may have freed the memory meanwhile. */
static void put_got(const char *what, const void *p, size_t bytes)
{
	void *copy = malloc(bytes + 1);
	struct iovec from = {(void *)(uintptr_t)p, bytes}, to = {copy, bytes};
	if (copy && process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)bytes)
		put_arrival(what, p, bytes, keep_little(copy, bytes));
	free(copy);
}

/* Records the data that have arrived at the host after a stream, or all streams (every), were synchronised. */
static void put_arrived(uint64_t stream, int every)
{
	int left = 0;
	for (int i = 0; i < laterCount; i++)
		if (every || later[i].stream == stream)
			put_got("got", later[i].at, later[i].bytes);
		else
			later[left++] = later[i];
	laterCount = left;
	for (int i = 0; every && i < madeCount; i++)
		if (made[i].use == PINNED && made[i].used) {
			put_got("seen", (void *)(uintptr_t)made[i].at, made[i].bytes);
			made[i].used = 0;
		}
}

void put_epilogue(const char *name, const uint64_t *a, CUresult result)
{
	if (result)
		return;
	if (called(name, "cuLinkComplete"))
		fprintf(the_file(), "linked %llx\n", *(unsigned long long *)(uintptr_t)a[1]);
	if (called(name, "cuStreamSynchronize"))
		put_arrived(a[0], a[0] <= 2);
	else if (called(name, "cuCtxSynchronize"))
		put_arrived(0, 1);
	else if (strstr(name, "cuMemcpy") == name && !is_async(name))
		put_arrived(0, 0);
}
