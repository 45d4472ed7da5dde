/*
 * Calls the driver and records arguments and results. docs/recording.md has the format; special.c handles special
 * calls. One lock orders the calls of all threads by their returns.
 */
#define _GNU_SOURCE
#include "writing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void **real;
static FILE *out;

static _Noreturn void give_up(const char *what, const char *why)
{
	fprintf(stderr, "record: %s: %s\n", what, why);
	exit(1);
}

static void begin(void)
{
	const char *driver = getenv("PEGASUS_RECORD_DRIVER"), *path = getenv("PEGASUS_RECORD");
	if (!driver)
		give_up("PEGASUS_RECORD_DRIVER", "must be the path of the driver's libcuda.so.1");
	void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		give_up("PEGASUS_RECORD_DRIVER", dlerror());
	if (!path)
		give_up("PEGASUS_RECORD", "must be the file to write to");
	char name[4096];
	snprintf(name, sizeof name, "%s.%d", path, (int)getpid()); /* a program may start others */
	if (!(out = fopen(name, "we")))
		give_up(name, "can't be written");
	fprintf(out, "pegasus-calls 1\n");
	real = calloc((size_t)recordedCount, sizeof *real);
	if (!real)
		give_up("memory", "there is none");
	for (int i = 0; i < recordedCount; i++)
		real[i] = dlsym(library, recorded[i].name);
}

void *record_real(int which)
{
	pthread_once(&once, begin);
	return real[which];
}

void *real_called(const char *name)
{
	for (int i = 0; i < recordedCount; i++)
		if (!strcmp(recorded[i].name, name))
			return real[i];
	return NULL;
}

void *wrapper_of(void *function)
{
	for (int i = 0; function && i < recordedCount; i++)
		if (real[i] == function)
			return recorded[i].wrapper;
	return function;
}

/* --- encoding --- */

/* FNV-1a, of 64 bits. */
static uint64_t digest_of(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h;
}

static uint64_t *known;
static size_t knownCount;

/* Reports whether the file contains data with this digest already, and marks it as contained. */
static int is_known(uint64_t digest)
{
	for (size_t i = 0; i < knownCount; i++)
		if (known[i] == digest)
			return 1;
	uint64_t *more = realloc(known, (knownCount + 1) * sizeof *known);
	if (more) {
		known = more;
		known[knownCount++] = digest;
	}
	return 0;
}

static int is_text(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((p[i] < 32 || p[i] > 126) && p[i] != '\n' && p[i] != '\t' && p[i] != '\r' && !(p[i] == 0 && i + 1 == n))
			return 0;
	return n > 0;
}

void put_hex(FILE *to, const void *data, size_t bytes)
{
	const unsigned char *p = data;
	for (size_t i = 0; i < bytes; i++)
		fprintf(to, "%02x", p[i]);
}

void put_text(FILE *to, const char *s, size_t n)
{
	fputc('"', to);
	for (size_t i = 0; i < n; i++)
		switch (s[i]) {
		case '\n': fputs("\\n", to); break;
		case '\t': fputs("\\t", to); break;
		case '\r': fputs("\\r", to); break;
		case 0: fputs("\\0", to); break;
		case '"': case '\\': fputc('\\', to); /* fall through */
		default: fputc(s[i], to);
		}
	fputc('"', to);
}

/* Adds data to the file, unless it contains them, and returns their digest. */
uint64_t keep_data(const void *data, size_t bytes)
{
	uint64_t digest = digest_of(data, bytes);
	if (is_known(digest))
		return digest;
	fprintf(out, "data %016llx %zu ", (unsigned long long)digest, bytes);
	if (is_text(data, bytes))
		put_text(out, data, bytes);
	else
		put_hex(out, data, bytes);
	fputc('\n', out);
	return digest;
}

void put_data(FILE *to, const void *data, size_t bytes)
{
	uint64_t digest = keep_data(data, bytes);
	fprintf(to, "#%016llx:%zu", (unsigned long long)digest, bytes);
	if (is_pinned(data))
		fprintf(to, "@%llx", (unsigned long long)(uintptr_t)data);
}

/*
 * Larger results are recorded by their digest only; smaller ones are kept, so that numbers can be compared with a
 * tolerance.
 */
enum { LITTLE = 1 << 14 };

uint64_t keep_little(const void *data, size_t bytes)
{
	return bytes <= LITTLE ? keep_data(data, bytes) : digest_of(data, bytes);
}

void put_digest(FILE *to, const void *data, size_t bytes)
{
	fprintf(to, ">#%016llx:%zu", (unsigned long long)keep_little(data, bytes), bytes);
	if (is_pinned(data))
		fprintf(to, "@%llx", (unsigned long long)(uintptr_t)data);
}

FILE *the_file(void) { return out; }

/* --- arguments --- */

static size_t count_of(const struct recorded *r, const uint64_t *a, int i)
{
	int c = r->arguments[i].counted;
	if (c < 0)
		return 1;
	if (r->arguments[c].kind != NUMBER)
		return 0;
	return a[c] > 1 << 20 ? 0 : (size_t)a[c];
}

static size_t bytes_of(const struct recorded *r, const uint64_t *a, int i)
{
	int c = r->arguments[i].counted;
	return c < 0 ? 0 : (size_t)a[c];
}

/* Writes the form of an argument that the driver reads, before the call. */
static void put_before(FILE *to, const struct recorded *r, const uint64_t *a, int i)
{
	const void *p = (const void *)(uintptr_t)a[i];
	enum argument_kind kind = r->arguments[i].kind;
	size_t size = r->arguments[i].size, n = count_of(r, a, i);
	switch (kind) {
	case NUMBER:
		fprintf(to, "%llu", (unsigned long long)a[i]);
		return;
	case HANDLE:
		fprintf(to, "@%llx", (unsigned long long)a[i]);
		return;
	default:
		break;
	}
	if (!p) {
		fputc('-', to);
		return;
	}
	switch (kind) {
	case TEXT:
		put_text(to, p, strlen(p));
		return;
	case CALLBACK:
		fputc('!', to);
		return;
	case IN:
	case IN_OUT:
		fputc('=', to);
		put_hex(to, p, size * n);
		return;
	case IN_HANDLES:
		for (size_t k = 0; k < n; k++)
			fprintf(to, "%s@%llx", k ? "," : "[", ((const unsigned long long *)p)[k]);
		fputs(n ? "]" : "[]", to);
		return;
	case DATA_IN:
		put_data(to, p, bytes_of(r, a, i));
		return;
	case SCRATCH:
		if (is_pinned(p))
			fprintf(to, "@%llx", (unsigned long long)a[i]);
		return;
	default:
		return; /* written after the call */
	}
}

/* Writes the form of an argument that the driver has written to. */
static void put_after(FILE *to, const struct recorded *r, const uint64_t *a, int i, CUresult result, const char *name)
{
	const void *p = (const void *)(uintptr_t)a[i];
	size_t size = r->arguments[i].size, n = count_of(r, a, i);
	if (!p)
		return;
	switch (r->arguments[i].kind) {
	case OUT_HANDLES:
		for (size_t k = 0; k < n; k++)
			fprintf(to, "%s@%llx", k ? "," : ">[", result ? 0ULL : ((const unsigned long long *)p)[k]);
		fputs(n ? "]" : ">[]", to);
		if (!result && n == 1)
			put_extent(to, name, a, *(const uint64_t *)p);
		return;
	case OUT:
	case IN_OUT:
		fputc('>', to);
		if (!result)
			put_hex(to, p, size * n);
		return;
	case DATA_OUT:
		put_output(to, name, a, p, bytes_of(r, a, i), result);
		return;
	case SCRATCH:
		fputc('?', to);
		return;
	default:
		return;
	}
}

/* Returns the number of the calling thread; 0 in a callback, since its calls cannot be replayed. */
static int thread(void)
{
	if (in_callback())
		return 0;
	static _Thread_local int mine;
	static int all;
	if (!mine)
		mine = ++all;
	return mine;
}

static CUresult by_words(void *f, const uint64_t *a)
{
	/* A function finds its arguments at the usual places, and ignores the others. */
	typedef CUresult (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
		uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
	return ((any)f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

CUresult record_call(int which, uint64_t *a)
{
	const struct recorded *r = &recorded[which];
	char *before[MAX_ARGUMENTS] = {0};
	void *f = record_real(which);
	if (!f)
		return CUDA_ERROR_NOT_FOUND;
	if (is_unrecorded(r->name))
		return by_words(f, a);

	pthread_mutex_lock(&lock);
	for (int i = 0; i < r->count; i++) {
		size_t length;
		FILE *to = open_memstream(&before[i], &length);
		if (!put_special(to, r->name, a, i))
			put_before(to, r, a, i);
		fclose(to);
	}
	put_prelude(r->name, a);
	stand_between(r->name, a);
	pthread_mutex_unlock(&lock);

	CUresult result = by_words(f, a);

	pthread_mutex_lock(&lock);
	after_call(r->name, a, result);
	char *line;
	size_t length;
	FILE *to = open_memstream(&line, &length); /* its data are written before it */
	for (int i = 0; i < r->count; i++) {
		fprintf(to, " %s", before[i]);
		if (!*before[i] || r->arguments[i].kind == IN_OUT)
			put_after(to, r, a, i, result, r->name);
		free(before[i]);
	}
	fclose(to);
	fprintf(out, "%d %s %d%s\n", thread(), r->name, result, line);
	free(line);
	put_epilogue(r->name, a, result);
	fflush(out);
	pthread_mutex_unlock(&lock);
	return result;
}
