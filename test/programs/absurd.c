/*
 * Calls every symbol with absurd arguments, in child processes, and checks that
 * only documented results come back.
 *
 *	absurd STATE [-s SEED] [-r RANDOM] [-o SYMBOL] [-p PATTERN] [-e]
 *
 * STATE is the state of the process before the calls: see states below. A child makes
 * all calls of a few symbols; with -e it makes one call of an implemented one. After a
 * child that died, the next one goes on. Every call gets a fresh context and fresh handles if the
 * call before it succeeded. -r is the number of random patterns, beyond the fixed ones.
 *
 * The arguments respect a program's own obligations: pointers are null or lead to
 * memory, counts of elements are not larger than the memory that they describe.
 */
#include "../../cuda/testdata/c/zz_calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CALLS = sizeof calls / sizeof *calls,
	PARAMETERS = 16,
	BUFFER = 1 << 18, /* bytes behind each pointer */
	DEVICE_BYTES = 1 << 16, /* less than that: a copy that the device permits stays within the buffers */
	SYMBOLS_PER_CHILD = 8,
	STUBS_PER_CHILD = 64, /* not implemented */
	PATIENCE = 300, /* seconds that a child may take, on a slow and busy machine */
	DIED_OF_TIMEOUT = 3, /* exit status: a killed kernel has made the process unusable, which is documented */
};

static const struct state {
	const char *name;
	bool init, context, live;
} states[] = {
	{"none", false, false, false}, /* nothing */
	{"init", true, false, false}, /* cuInit */
	{"context", true, true, false}, /* a context is current */
	{"live", true, true, true}, /* a context is current, and there are handles of every kind */
	{"stale", true, true, true}, /* the handles are of a context that was destroyed, another is current */
	{"gone", true, true, true}, /* a destroyed context is current */
	{"thread", true, true, true}, /* a second thread calls, every other time with the context current */
	{"fork", true, true, true}, /* a child of a process with such handles calls */
};
static const struct state *state;

/* The handles there are, by kind. */
static uint64_t live[KIND_HANDLE + 1];
static CUdeviceptr memory, freed;
static void *pinned;
static CUlibrary library;

static uint64_t seed = 1;
static int randoms = 4;
static bool each;

/* Shared by parent and children: the call in progress. */
static struct {
	int symbol, pattern;
	long calls, results[1000];
	int failures;
} *progress;

static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .global .align 8 .u64 word;\n"
	".visible .entry work(.param .u64 at, .param .u32 value)\n{\n"
	"	.reg .u64 %p;\n	.reg .u32 %v;\n"
	"	ld.param.u64 %p, [at];\n	ld.param.u32 %v, [value];\n	st.global.u32 [%p], %v;\n	ret;\n}\n";

static const uint64_t numbers[] = {0, 1, 0x7fffffff, 0x80000000, 0x4141414141414140, ~0ull};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* --- random numbers: the same for the same seed, symbol and pattern */

static uint64_t chance;

static uint64_t draw(uint64_t below)
{
	uint64_t z = chance += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

/* --- results */

static bool documented(const struct call *c, CUresult r)
{
	for (int i = 0; i < c->resultCount; i++)
		if (c->results[i] == (int)r)
			return true;
	return false;
}

static const struct call *named(const char *name)
{
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return &calls[i];
	fprintf(stderr, "no symbol %s\n", name);
	exit(2);
}

/* Reports whether a result is permitted in this state. */
static bool right(const struct call *c, CUresult r)
{
	bool initialized = state->init && strcmp(state->name, "fork");
	if (!initialized && (!c->beforeInit || r == CUDA_ERROR_NOT_INITIALIZED))
		return r == CUDA_ERROR_NOT_INITIALIZED && (!c->beforeInit || !strcmp(c->name, "cuInit"));
	if (!c->implemented)
		return r == CUDA_ERROR_NOT_SUPPORTED;
	return r != CUDA_ERROR_NOT_INITIALIZED && r != CUDA_ERROR_DEINITIALIZED && documented(c, r);
}

/* --- state of a call */

static CUresult prepare_handles(void)
{
	CUresult r;
	CUmodule module = NULL;
	CUfunction function = NULL;
	CUstream stream;
	CUevent event;
	CUarray array;
	CUtexObject texture;
	CUkernel kernel;
	CUmipmappedArray mipmap;
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 64, .Height = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	if ((r = cuModuleLoadData(&module, ptx)) || (r = cuModuleGetFunction(&function, module, "work")) ||
		(r = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) || (r = cuEventCreate(&event, 0)) ||
		(r = cuMemAlloc_v2(&freed, DEVICE_BYTES)) || (r = cuMemFree_v2(freed)) || (r = cuMemAlloc_v2(&memory, DEVICE_BYTES)) ||
		(r = cuMemHostAlloc(&pinned, DEVICE_BYTES, 0)) || (r = cuArrayCreate_v2(&array, &shape)))
		return r;
	CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = 16, .Height = 8, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	CUDA_TEXTURE_DESC how = {0};
	if ((r = cuTexObjectCreate(&texture, &resource, &how, NULL)) || (r = cuEventRecord(event, stream)) ||
		(r = cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0)) || (r = cuLibraryGetKernel(&kernel, library, "work")) ||
		(r = cuMipmappedArrayCreate(&mipmap, &whole, 3)))
		return r;
	live[KIND_MODULE] = (uintptr_t)module;
	live[KIND_FUNCTION] = (uintptr_t)function;
	live[KIND_STREAM] = (uintptr_t)stream;
	live[KIND_EVENT] = (uintptr_t)event;
	live[KIND_ARRAY] = (uintptr_t)array;
	live[KIND_TEXTURE] = texture;
	live[KIND_MIPMAP] = (uintptr_t)mipmap;
	live[KIND_LIBRARY] = (uintptr_t)library;
	live[KIND_KERNEL] = (uintptr_t)kernel;
	return CUDA_SUCCESS;
}

static CUresult prepare_context(void)
{
	CUcontext context;
	CUresult r = cuCtxCreate_v2(&context, 0, 0);
	live[KIND_CONTEXT] = (uintptr_t)context;
	return r ? r : state->live ? prepare_handles() : CUDA_SUCCESS;
}

static void *destroy(void *context)
{
	CUresult r = cuCtxDestroy_v2(context);
	return (void *)(uintptr_t)r;
}

static CUcontext current; /* the current context of a call, if it is not the context of the handles */

static CUresult prepare(void)
{
	CUresult r;
	void *said;
	pthread_t other;
	current = NULL;
	if (!state->context)
		return CUDA_SUCCESS;
	if ((r = prepare_context()))
		return r;
	if (!strcmp(state->name, "stale"))
		return (r = cuCtxDestroy_v2((CUcontext)live[KIND_CONTEXT])) ? r : cuCtxCreate_v2(&current, 0, 0);
	if (!strcmp(state->name, "gone")) {
		if (pthread_create(&other, NULL, destroy, (void *)live[KIND_CONTEXT]) || pthread_join(other, &said))
			return CUDA_ERROR_OPERATING_SYSTEM;
		return (CUresult)(uintptr_t)said;
	}
	return CUDA_SUCCESS;
}

/*
 * Releases the objects of prepare. Launched kernels may have failed, nothing else. waits: a stream may wait for a word
 * that is never written, or capture; then the context cannot be synchronised.
 */
static CUresult clean(bool waits)
{
	CUcontext context = current ? current : (CUcontext)live[KIND_CONTEXT];
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* in this mode a capture that the call has begun forbids nothing */
	CUresult r;
	cuThreadExchangeStreamCaptureMode(&mode);
	if (library)
		cuLibraryUnload(library); /* belongs to no context */
	library = NULL;
	if (!state->context || cuCtxSetCurrent(context)) { /* destroyed */
		cuThreadExchangeStreamCaptureMode(&mode);
		return CUDA_SUCCESS;
	}
	r = waits ? CUDA_SUCCESS : cuCtxSynchronize();
	if (pinned && !waits) /* else it is freed with the context */
		cuMemFreeHost(pinned);
	cuCtxDestroy_v2(context);
	cuThreadExchangeStreamCaptureMode(&mode);
	pinned = NULL;
	return r;
}

/* --- arguments */

static size_t nothing(void) { return 0; }

static uint8_t *buffers[PARAMETERS + 8]; /* one for each argument, and some for fields */
static int buffersUsed;

/* Memory with zeros, letters, ones, or small numbers; all end in zeros. */
static void *fill(int how)
{
	uint8_t *b = buffers[buffersUsed < PARAMETERS + 7 ? buffersUsed++ : buffersUsed];
	memset(b, how == 1 ? 'A' : how == 2 ? 0xff : 0, BUFFER / 2);
	memset(b + BUFFER / 2, 0, BUFFER / 2);
	for (uint32_t i = 0; i < 64 && how == 3; i++)
		memcpy(b + i * sizeof i, &(uint32_t){i + 1}, sizeof i);
	return b;
}

static void *pointers(bool null)
{
	void **b = fill(0);
	for (size_t i = 0; i < BUFFER / 2 / sizeof *b && !null; i++)
		b[i] = buffers[PARAMETERS + 7];
	return b;
}

/* Returns a valid argument or field of a kind. */
static uint64_t sensible(enum kind k)
{
	switch (k) {
	case KIND_NUMBER:
	case KIND_COUNT:
		return 1;
	case KIND_ADDRESS:
		return memory;
	case KIND_MEMORY:
		return (uintptr_t)fill(0);
	case KIND_POINTERS:
		return (uintptr_t)pointers(false);
	case KIND_TEXT:
		return (uintptr_t)strcpy(fill(0), "work");
	case KIND_CALLBACK:
		return (uintptr_t)nothing;
	default:
		return k <= KIND_HANDLE ? live[k] : 0;
	}
}

/* Returns a number as an address. With AddressSanitizer its memcpy, not the library, would end the process for some. */
static uint64_t wild(uint64_t n)
{
#ifdef __SANITIZE_ADDRESS__
	if (n >= 0x7fff8000 && n < 0x10007fff8000)
		return ~0ull;
#endif
	return n;
}

/* Returns a random argument or field of a kind. */
static uint64_t any(enum kind k)
{
	static const char *const texts[] = {"", "/", "/nonexistent", "word", "%s%n", "0000:01:00.0"};
	static const uint64_t sizes[] = {2, 3, 4, 7, 16, 64, 4096, DEVICE_BYTES, DEVICE_BYTES + 1};
	uint64_t n = numbers[draw(NUMBERS)];
	if (k != KIND_NUMBER && draw(2))
		return sensible(k);
	switch (k) {
	case KIND_NUMBER:
		if (draw(3) == 0)
			return sensible(k);
		return draw(4) == 0 ? n : draw(3) == 0 ? sizes[draw(9)] : draw(2) ? draw(3) : draw(20);
	case KIND_COUNT:
	case KIND_FLOAT:
	case KIND_DEVICE:
		return draw(2) ? n : draw(4);
	case KIND_ADDRESS: {
		const uint64_t addresses[] = {memory, memory + 1, memory + DEVICE_BYTES - 1, memory + DEVICE_BYTES, freed, (uintptr_t)pinned, wild(n)};
		return addresses[draw(7)];
	}
	case KIND_MEMORY:
		if (draw(12) == 0)
			return (uintptr_t)memcpy(fill(0), ptx, sizeof ptx);
		return draw(4) == 0 ? 0 : draw(8) == 0 && pinned ? (uintptr_t)pinned : (uintptr_t)fill((int)draw(4));
	case KIND_POINTERS:
		return draw(4) == 0 ? 0 : (uintptr_t)pointers(draw(4) == 0);
	case KIND_TEXT:
		return draw(4) == 0 ? 0 : draw(4) == 0 ? (uintptr_t)fill(1) : (uintptr_t)strcpy(fill(0), texts[draw(6)]);
	case KIND_CALLBACK:
		return draw(2) ? (uintptr_t)nothing : 0;
	default: /* handles: right, of another kind, or nonsense */
		return draw(3) == 0 ? n : draw(4) == 0 ? live[KIND_CONTEXT + draw(KIND_HANDLE - KIND_CONTEXT)] : live[k];
	}
}

/* Counts that describe memory are not larger than it. */
static uint64_t bounded(uint64_t n) { return n > 16 ? n % 16 : n; }

static void set(uint8_t *b, const struct field *f, uint64_t v)
{
	for (int at = 0; at < f->bytes; at += 8)
		memcpy(b + f->offset + at, &v, f->bytes - at < 8 ? (size_t)(f->bytes - at) : 8);
}

/* Numbers beside a pointer determine how far beyond it a copy reaches, for which the program is responsible. */
static void keep_within(const struct parameter *p, uint8_t *b)
{
	uint64_t n, most = draw(2) ? 48 : 0;
	for (int i = 0; i < p->fieldCount; i++) {
		const struct field *f = &p->fields[i];
		if (f->kind == KIND_MEMORY && !most)
			set(b, f, 0);
		if (f->kind != KIND_NUMBER || f->bytes > 8 || !most)
			continue;
		n = 0;
		memcpy(&n, b + f->offset, f->bytes);
		set(b, f, n % most);
	}
}

static void *structure(const struct parameter *p, int how, uint64_t n)
{
	uint8_t *b = fill(0);
	for (int i = 0; i < p->fieldCount; i++) {
		const struct field *f = &p->fields[i];
		bool pointer = f->kind == KIND_MEMORY || f->kind == KIND_POINTERS;
		bool alternative = i && f->offset < p->fields[i - 1].offset + p->fields[i - 1].bytes; /* alternatives of a union */
		if (alternative && (how != 2 || draw(2)))
			continue;
		uint64_t v = how == 2 ? any(f->kind) : how == 1 || pointer ? sensible(f->kind) : n;
		if (f->kind == KIND_COUNT)
			v = bounded(v);
		set(b, f, v);
	}
	if (how == 2)
		keep_within(p, b);
	return b;
}

static bool is_memory(enum kind k) { return k >= KIND_MEMORY && k <= KIND_TEXT; }

/*
 * The fixed patterns, by number: nulls with each number; memory with each number; all arguments valid; all valid but
 * one. Those after are random.
 */
static int patterns(const struct call *c) { return 2 * NUMBERS + 1 + c->parameterCount + randoms; }

static void choose(const struct call *c, int symbol, int pattern, uint64_t *a)
{
	int odd = pattern - 2 * NUMBERS - 1;
	bool random = odd >= c->parameterCount, memories = false;
	uint64_t n = numbers[pattern % NUMBERS];
	chance = seed * 1000003 + (uint64_t)symbol * 1009 + (uint64_t)pattern;
	buffersUsed = 0;
	for (int i = 0; i < c->parameterCount; i++) {
		const struct parameter *p = &c->parameters[i];
		bool null = pattern < NUMBERS || odd == i;
		if (p->kind == KIND_STRUCT)
			a[i] = null || (random && draw(6) == 0) ? 0 : (uintptr_t)structure(p, random ? 2 : odd >= 0 ? 1 : 0, n);
		else if (is_memory(p->kind))
			a[i] = null ? 0 : random ? any(p->kind) : sensible(p->kind);
		else if (p->kind == KIND_CALLBACK && null)
			a[i] = 0;
		else if (random)
			a[i] = any(p->kind);
		else if (pattern >= 2 * NUMBERS)
			a[i] = odd == i ? numbers[4 + draw(2)] : sensible(p->kind);
		else if (p->kind == KIND_CALLBACK)
			a[i] = sensible(p->kind);
		else
			a[i] = p->kind == KIND_ADDRESS ? wild(n) : n;
		memories |= is_memory(p->kind) && a[i];
	}
	for (int i = 0; i < c->parameterCount && memories; i++)
		if (c->parameters[i].kind == KIND_COUNT)
			a[i] = bounded(a[i]);
}

/* --- children */

static void report(const struct call *c, const uint64_t *a, const char *what)
{
	char line[1024];
	int n = snprintf(line, sizeof line, "%s: %s #%d -s %llu (", state->name, c->name, progress->pattern, (unsigned long long)seed);
	for (int i = 0; a && i < c->parameterCount; i++)
		n += snprintf(line + n, sizeof line - (size_t)n, "%s%#llx", i ? ", " : "", (unsigned long long)a[i]);
	n += snprintf(line + n, sizeof line - (size_t)n, "): %s\n", what);
	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(1);
	__atomic_add_fetch(&progress->failures, 1, __ATOMIC_RELAXED);
}

struct work {
	const struct call *call;
	uint64_t *arguments;
	CUresult result;
};

static void *second_thread(void *argument)
{
	struct work *w = argument;
	if (progress->pattern % 2)
		cuCtxSetCurrent((CUcontext)live[KIND_CONTEXT]);
	w->result = w->call->call(w->arguments);
	return NULL;
}

static CUresult perform(const struct call *c, uint64_t *a)
{
	struct work w = {c, a, CUDA_ERROR_UNKNOWN};
	pthread_t other;
	if (strcmp(state->name, "thread"))
		return c->call(a);
	if (pthread_create(&other, NULL, second_thread, &w) || pthread_join(other, NULL))
		_exit(2);
	return w.result;
}

static void make_buffers(void)
{
	for (int i = 0; i < PARAMETERS + 8; i++)
		if (!(buffers[i] = calloc(1, BUFFER)))
			_exit(2);
}

/* Reports whether this result may end the use of the process. */
static bool ends_process(CUresult r) { return r == CUDA_ERROR_LAUNCH_TIMEOUT; }

static void one_call(const struct call *c)
{
	char what[128];
	uint64_t a[PARAMETERS] = {0};
	choose(c, progress->symbol, progress->pattern, a);
	CUresult r = perform(c, a);
	progress->calls++;
	progress->results[(unsigned)r < 1000 ? r : 999]++;
	if (!right(c, r)) {
		snprintf(what, sizeof what, "result %d", r);
		report(c, a, what);
	}
	if (!strcmp(state->name, "fork") || (r && !ends_process(r)))
		return; /* a call that fails changes nothing */
	CUresult after = clean(!strncmp(c->name, "cuStreamWaitValue", 17) || !strncmp(c->name, "cuStreamBatchMemOp", 18) || !strncmp(c->name, "cuStreamBeginCapture", 20));
	if (!documented(named("cuCtxSynchronize"), after)) {
		snprintf(what, sizeof what, "result %d, then cuCtxSynchronize %d", r, after);
		report(c, a, what);
	}
	CUresult again = prepare();
	if (again && (ends_process(after) || ends_process(r)))
		_exit(DIED_OF_TIMEOUT);
	if (again) {
		snprintf(what, sizeof what, "result %d, then a new context: %d", r, again);
		report(c, a, what);
		_exit(0);
	}
}

/* Advances to the next pattern, or the next symbol's first. False at the end of a child's share. */
static bool next(int last)
{
	if (++progress->pattern >= patterns(&calls[progress->symbol])) {
		progress->pattern = 0;
		progress->symbol++;
	}
	return progress->symbol <= last && !(each && calls[progress->symbol].implemented);
}

static void begin(void)
{
	CUresult r = CUDA_SUCCESS;
	if ((state->init && (r = cuInit(0))) || (r = prepare())) {
		printf("%s: cannot even begin: %d\n", state->name, r);
		fflush(stdout);
		_exit(2);
	}
}

static void child(int last)
{
	alarm(PATIENCE);
	if (strcmp(state->name, "fork"))
		begin();
	else
		pinned = NULL; /* not readable in the child */
	do
		one_call(&calls[progress->symbol]);
	while (next(last));
	fflush(NULL);
	_exit(0);
}

/* Returns the last symbol of the first one's child. A child without cuInit has one: nothing takes a cuInit back. */
static int share(int first)
{
	int last = first, most = !calls[first].implemented ? STUBS_PER_CHILD : state->init ? SYMBOLS_PER_CHILD : 1;
	while (last + 1 < CALLS && last + 1 - first < most && calls[last + 1].implemented == calls[first].implemented)
		last++;
	return last;
}

/* Runs a child to its end and reports whether to continue. */
static void run_child(int last)
{
	char what[64];
	int status, symbol = progress->symbol, pattern = progress->pattern;
	fflush(NULL);
	pid_t id = fork();
	if (!id)
		child(last);
	if (id < 0 || waitpid(id, &status, 0) != id) {
		perror("fork");
		exit(2);
	}
	if (WIFEXITED(status) && !WEXITSTATUS(status) && (progress->symbol != symbol || progress->pattern != pattern))
		return;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
		exit(2);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != DIED_OF_TIMEOUT) {
		snprintf(what, sizeof what, WIFSIGNALED(status) ? "signal %d" : "exit %d", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		uint64_t a[PARAMETERS] = {0};
		choose(&calls[progress->symbol], progress->symbol, progress->pattern, a);
		report(&calls[progress->symbol], a, what);
	}
	next(last);
}

int main(int argc, char **argv)
{
	int option, first = 0, end = CALLS, only = -1, children = 0;
	progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	while ((option = getopt(argc, argv, "s:r:o:p:e")) != -1)
		switch (option) {
		case 's': seed = strtoull(optarg, NULL, 0); break;
		case 'r': randoms = atoi(optarg); break;
		case 'o': first = (int)(named(optarg) - calls), end = first + 1; break;
		case 'p': only = atoi(optarg); break;
		case 'e': each = true; break;
		default: return 2;
		}
	for (size_t i = 0; i < sizeof states / sizeof *states && optind < argc; i++)
		if (!strcmp(argv[optind], states[i].name))
			state = &states[i];
	if (!state || progress == MAP_FAILED)
		return fprintf(stderr, "which state?\n"), 2;
	make_buffers();
	if (!strcmp(state->name, "fork"))
		begin();
	progress->symbol = first;
	progress->pattern = only < 0 ? 0 : only;
	for (; progress->symbol < end && (only < 0 || children < 1); children++) {
		int last = share(progress->symbol);
		run_child(only >= 0 ? -1 : last < end ? last : end - 1);
	}
	if (!strcmp(state->name, "fork") && clean(false)) {
		printf("fork: the parent's context suffered\n");
		progress->failures++;
	}
	printf("%s: %ld calls of %d symbols in %d children, %d failures; results", state->name, progress->calls, end - first, children, progress->failures);
	for (int r = 0; r < 1000; r++)
		if (progress->results[r])
			printf(" %d:%ld", r, progress->results[r]);
	printf("\n");
	return progress->failures != 0;
}
