/*
 * Replays the calls of a recording with the libcuda.so.1 that the loader finds, and compares the results.
 * docs/recording.md has the format. The exit status is 1 if a result differs, or data copied to the host.
 */
#define _GNU_SOURCE
#define PEGASUS_CUDA_ALL
#include <cuda.h>

#include <ctype.h>
#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 16, THREADS = 64, SCRATCH = 1 << 16 };

static struct { int calls, results, data, others, missing; } count;
static bool all;
static double within; /* tolerance for floating-point results, relative to the greater one */
static int lineNumber;

static _Noreturn void broken(const char *why)
{
	fprintf(stderr, "replay: line %d: %s\n", lineNumber, why);
	exit(2);
}

static void *memory(size_t bytes)
{
	void *p = bytes < SIZE_MAX / 2 ? calloc(1, bytes + 16) : NULL;
	if (!p)
		broken("there is no memory");
	return p;
}

/* --- mapping of recorded values --- */

static struct known { uint64_t was, is, bytes; } *known; /* a handle, or an address with the bytes that follow it */
static size_t knownCount, knownRoom;

static void learn(uint64_t was, uint64_t is, uint64_t bytes)
{
	if (!was)
		return;
	if (knownCount == knownRoom && !(known = realloc(known, (knownRoom = 2 * knownRoom + 64) * sizeof *known)))
		broken("there is no memory");
	known[knownCount++] = (struct known){was, is, bytes};
}

/* The latest entry counts: values are reused. */
static const struct known *find_known(uint64_t was)
{
	for (size_t i = knownCount; i-- > 0;)
		if (was == known[i].was || (was > known[i].was && was - known[i].was < known[i].bytes))
			return &known[i];
	return NULL;
}

static uint64_t now_is(uint64_t was)
{
	const struct known *k = find_known(was);
	return k ? k->is + (was - k->was) : was;
}

/* Returns the host memory that stands for bytes at a recorded address: in memory of the driver here, too. */
static void *host_memory(uint64_t was, size_t bytes)
{
	const struct known *k = find_known(was);
	if (!k || !k->is || bytes > k->bytes || was - k->was > k->bytes - bytes)
		broken("host memory is used that was never made, or beyond its end");
	return (void *)(uintptr_t)(k->is + (was - k->was));
}

/*
 * Replaces words in memory that were recorded addresses or handles by the current ones. A small number is translated as
 * a handle only if its word contains nothing else (alone).
 */
static void translate(void *p, size_t bytes, bool alone)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word;
		memcpy(&word, (char *)p + i, sizeof word);
		if (word < 4096 && !alone)
			continue;
		const struct known *k = word ? find_known(word) : NULL;
		if (!k)
			continue;
		word = k->is + (word - k->was);
		memcpy((char *)p + i, &word, sizeof word);
	}
}

/* --- reading --- */

static struct blob { uint64_t digest; unsigned char *data; size_t bytes; } *blobs;
static size_t blobCount;

static uint64_t digest_of(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h;
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static uint64_t hex(const char **at)
{
	uint64_t v = 0;
	if (digit(**at) < 0)
		broken("a number is missing");
	while (digit(**at) >= 0)
		v = v << 4 | (uint64_t)digit(*(*at)++);
	return v;
}

static size_t number(const char **at)
{
	char *end;
	if (!isdigit((unsigned char)**at))
		broken("a number is missing");
	size_t n = strtoull(*at, &end, 10);
	*at = end;
	return n;
}

static void expect(const char **at, char c)
{
	if (*(*at)++ != c)
		broken("it can't be read");
}

/* Parses bytes written as pairs of hexadecimal digits. */
static unsigned char *bytes_at(const char **at, size_t *n)
{
	size_t digits = 0;
	while (digit((*at)[digits]) >= 0)
		digits++;
	unsigned char *p = memory(digits / 2);
	for (size_t i = 0; i < digits / 2; i++)
		p[i] = (unsigned char)(digit((*at)[2 * i]) << 4 | digit((*at)[2 * i + 1]));
	*at += digits;
	*n = digits / 2;
	return p;
}

static unsigned char *text_at(const char **at, size_t *n)
{
	unsigned char *p = memory(strlen(*at));
	*n = 0;
	expect(at, '"');
	for (; **at && **at != '"'; (*at)++) {
		char c = **at;
		if (c == '\\')
			switch (c = *++*at) {
			case 'n': c = '\n'; break;
			case 't': c = '\t'; break;
			case 'r': c = '\r'; break;
			case '0': c = 0; break;
			case 0: broken("a text doesn't end");
			}
		p[(*n)++] = (unsigned char)c;
	}
	expect(at, '"');
	return p;
}

static void read_blob(const char *at)
{
	struct blob b = {.digest = hex(&at)};
	expect(&at, ' ');
	size_t wanted = number(&at);
	expect(&at, ' ');
	b.data = *at == '"' ? text_at(&at, &b.bytes) : bytes_at(&at, &b.bytes);
	if (b.bytes != wanted || digest_of(b.data, b.bytes) != b.digest)
		broken("the data isn't what its digest says");
	if (!(blobs = realloc(blobs, (blobCount + 1) * sizeof *blobs)))
		broken("there is no memory");
	blobs[blobCount++] = b;
}

static const struct blob *find_blob(uint64_t digest, size_t bytes)
{
	for (size_t i = 0; i < blobCount; i++)
		if (blobs[i].digest == digest && blobs[i].bytes == bytes)
			return &blobs[i];
	return NULL;
}

/* Reports whether all values are near, as numbers of this size. */
#define NEAR(type, was, is, n)                                                                       \
	({                                                                                           \
		bool near_ = (n) % sizeof(type) == 0;                                                \
		for (size_t i_ = 0; near_ && i_ < (n); i_ += sizeof(type)) {                         \
			type x_, y_;                                                                 \
			memcpy(&x_, (const char *)(was) + i_, sizeof x_);                            \
			memcpy(&y_, (const char *)(is) + i_, sizeof y_);                             \
			near_ = x_ == y_ || fabs((double)x_ - (double)y_) <= within * fmax(fabs((double)x_), fabs((double)y_)); \
		}                                                                                    \
		near_;                                                                               \
	})

static bool same_data(const void *is, size_t bytes, uint64_t was)
{
	if (digest_of(is, bytes) == was)
		return true;
	const struct blob *b = find_blob(was, bytes);
	return b && within > 0 && (NEAR(float, b->data, is, bytes) || NEAR(double, b->data, is, bytes));
}

/* Data for the driver: #DIGEST:BYTES, and @ADDRESS if they lay in memory of the driver. */
static void *data_at(const char **at)
{
	expect(at, '#');
	uint64_t digest = hex(at);
	expect(at, ':');
	size_t bytes = number(at);
	void *p = NULL;
	if (**at == '@') {
		++*at;
		p = host_memory(hex(at), bytes);
	}
	const struct blob *b = find_blob(digest, bytes);
	if (!b)
		broken("the data stands nowhere before");
	if (!p)
		p = memory(bytes);
	memcpy(p, b->data, bytes);
	translate(p, bytes, false);
	return p;
}

/* --- arguments --- */

struct argument {
	uint64_t word;
	enum { PLAIN, HANDLES, BYTES, DIGEST } out; /* the check after the call */
	const char *want;                           /* and the expected result in the line */
	unsigned char *memory;
	size_t bytes;
};

static void CUDA_CB of_stream(CUstream s, CUresult r, void *data) { (void)s, (void)r, (void)data; }
static void CUDA_CB of_host(void *data) { (void)data; }

/* Memory that is written after its call has returned. */
static struct later { uint64_t was; void *is; size_t bytes; } *later;
static size_t laterCount;

static void *later_at(const char **at)
{
	uint64_t was = hex(at);
	expect(at, ':');
	size_t bytes = number(at);
	void *p;
	if (**at == '@') {
		++*at;
		p = host_memory(hex(at), bytes);
	} else
		p = memory(bytes);
	if (!(later = realloc(later, (laterCount + 1) * sizeof *later)))
		broken("there is no memory");
	later[laterCount++] = (struct later){was, p, bytes};
	return p;
}

static void *host_at(const char **at)
{
	if (**at == '#')
		return data_at(at);
	expect(at, '>');
	expect(at, '?');
	return later_at(at);
}

/* Structures: =BYTES, then the values at some of their offsets: +OFFSET=BYTES, +OFFSET#…, +OFFSET>?… */
static unsigned char *structure_at(const char **at, size_t *n)
{
	unsigned char *p = bytes_at(at, n);
	translate(p, *n, false);
	while (**at == '+') {
		++*at;
		size_t offset = number(at), more;
		if (*n < 8 || offset > *n - 8)
			broken("a place is beyond its structure");
		void *there;
		if (**at == '=') {
			++*at;
			there = bytes_at(at, &more);
		} else
			there = host_at(at);
		memcpy(p + offset, &there, sizeof there);
	}
	return p;
}

static void **parameters_at(const char **at)
{
	void **each = memory(1024 * sizeof *each);
	for (size_t i = 0, n; i < 1024 && digit(**at) >= 0; i++) {
		unsigned char *p = bytes_at(at, &n);
		translate(p, n, n == 8);
		each[i] = p;
		if (**at == ',')
			++*at;
	}
	return each;
}

static void **extra_at(const char **at)
{
	size_t *n = memory(sizeof *n);
	void **extra = memory(5 * sizeof *extra);
	unsigned char *p = bytes_at(at, n);
	translate(p, *n, false);
	extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER, extra[1] = p, extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE, extra[3] = n, extra[4] = CU_LAUNCH_PARAM_END;
	return extra;
}

static void *handles_at(const char **at)
{
	uint64_t *p = memory(strlen(*at) * 8);
	for (size_t i = 0; **at != ']'; i++) {
		if (**at == ',')
			++*at;
		expect(at, '@');
		p[i] = now_is(hex(at));
	}
	++*at;
	return p;
}

/* The driver may write as many bytes as it did in the recording. */
static struct argument output_at(const char **at, size_t given)
{
	struct argument a = {0};
	size_t bytes = SCRATCH + given + 8 * strcspn(*at, " ");
	switch (**at) {
	case '[':
		a.out = HANDLES, a.want = *at + 1, a.memory = memory(bytes);
		break;
	case '?':
		++*at;
		a.memory = later_at(at);
		break;
	case '#':
		++*at;
		a.want = *at;
		if (**at != ':')
			a.out = DIGEST, hex(at);
		expect(at, ':');
		a.bytes = number(at);
		if (**at == '@') {
			++*at;
			a.memory = host_memory(hex(at), a.bytes);
		} else
			a.memory = memory(a.bytes);
		break;
	default:
		a.out = BYTES, a.want = *at, a.memory = memory(bytes);
	}
	*at += strcspn(*at, " ");
	a.word = (uintptr_t)a.memory;
	return a;
}

static struct argument argument_at(const char **at, const char *name)
{
	struct argument a = {0};
	size_t n;
	char first = **at;
	if (isdigit((unsigned char)first)) {
		a.word = strtoull(*at, (char **)at, 10);
		return a;
	}
	if (first == '"') {
		a.word = (uintptr_t)text_at(at, &n);
		return a;
	}
	if (first == '#') {
		a.word = (uintptr_t)data_at(at);
		return a;
	}
	++*at;
	switch (first) {
	case '-':
		break;
	case '@':
		a.word = now_is(hex(at));
		break;
	case '?':
		a.memory = memory(a.bytes = SCRATCH);
		a.word = (uintptr_t)a.memory;
		break;
	case '~': { /* memory of the program itself */
		uint64_t was = hex(at);
		expect(at, ':');
		n = number(at);
		void *p = n < SIZE_MAX / 2 ? aligned_alloc(4096, (n + 4095) / 4096 * 4096) : NULL;
		if (!p)
			broken("there is no memory");
		memset(p, 0, n);
		learn(was, (uintptr_t)p, n);
		a.word = (uintptr_t)p;
		break;
	}
	case '!':
		a.word = strstr(name, "Callback") ? (uintptr_t)of_stream : (uintptr_t)of_host;
		break;
	case '&':
		a.word = (uintptr_t)parameters_at(at);
		break;
	case '*':
		a.word = (uintptr_t)extra_at(at);
		break;
	case '[':
		a.word = (uintptr_t)handles_at(at);
		break;
	case '>':
		return output_at(at, 0);
	case '=': {
		unsigned char *given = structure_at(at, &n);
		a.word = (uintptr_t)given;
		if (**at == '>') { /* changed by the driver */
			++*at;
			a = output_at(at, n);
			if (a.out != BYTES)
				broken("what was given and changed isn't bytes");
			memcpy(a.memory, given, n);
		}
		break;
	}
	default:
		broken("an argument can't be read");
	}
	return a;
}

/* --- calls --- */

struct call {
	void *function;
	char name[128];
	int was, is;
	struct argument arguments[WORDS];
	int argumentCount;
};

static CUresult make(const struct call *c)
{
	typedef CUresult (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
		uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
	const struct argument *a = c->arguments;
	return ((any)c->function)(a[0].word, a[1].word, a[2].word, a[3].word, a[4].word, a[5].word, a[6].word, a[7].word, a[8].word, a[9].word,
		a[10].word, a[11].word, a[12].word, a[13].word, a[14].word, a[15].word);
}

static bool asks(const char *name) { return strstr(name, "Query") != NULL; }

/*
 * The recorded program may have polled until work had ended, and later calls rely on that: a query is repeated until it
 * gives the recorded result.
 */
static void carry_out(struct call *c)
{
	int tries = 0;
	do
		c->is = make(c);
	while (asks(c->name) && c->was == 0 && c->is == CUDA_ERROR_NOT_READY && ++tries < 100000 && usleep(100) == 0);
}

/* One thread stands for each thread of the program, since a context is current in one. They take turns. */
static struct thread {
	pthread_t id;
	bool started;
	struct call *work;
} threads[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *serve(void *of)
{
	struct thread *t = of;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!t->work)
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
		carry_out(t->work);
		pthread_mutex_lock(&lock);
		t->work = NULL;
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

static void have_made(int which, struct call *c)
{
	if (which < 1 || which > THREADS)
		broken("there are too many threads");
	struct thread *t = &threads[which - 1];
	if (!t->started && pthread_create(&t->id, NULL, serve, t))
		broken("a thread can't be made");
	t->started = true;
	pthread_mutex_lock(&lock);
	t->work = c;
	pthread_cond_broadcast(&changed);
	while (t->work)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void learn_handles(const struct argument *a)
{
	const char *at = a->want;
	uint64_t was[1024];
	size_t n = 0, bytes = 0;
	for (; *at != ']' && n < 1024; n++) {
		if (*at == ',')
			at++;
		expect(&at, '@');
		was[n] = hex(&at);
	}
	at++;
	if (*at == ':') {
		at++;
		bytes = number(&at);
	}
	for (size_t i = 0; i < n; i++)
		learn(was[i], ((uint64_t *)a->memory)[i], bytes);
}

static void differs(const char *name, const char *what)
{
	printf("line %d: %s: %s\n", lineNumber, name, what);
}

static void compare(const struct call *c)
{
	char text[200];
	count.calls++;
	if (c->is != c->was && !(asks(c->name) && c->was == CUDA_ERROR_NOT_READY && c->is == 0)) {
		count.results++;
		snprintf(text, sizeof text, "%d, and was %d", c->is, c->was);
		differs(c->name, text);
	}
	if (c->is || c->was)
		return;
	for (int i = 0; i < c->argumentCount; i++) {
		const struct argument *a = &c->arguments[i];
		const char *want = a->want;
		size_t n;
		switch (a->out) {
		case HANDLES:
			learn_handles(a);
			break;
		case BYTES: {
			unsigned char *was = bytes_at(&want, &n);
			if (memcmp(was, a->memory, n)) {
				count.others++;
				if (all)
					differs(c->name, "another answer");
			}
			free(was);
			break;
		}
		case DIGEST:
			if (!same_data(a->memory, a->bytes, hex(&want))) {
				count.data++;
				differs(c->name, "other data");
			}
			break;
		default:
			break;
		}
	}
}

static void *lastLinked;

static void read_call(void *library, const char *at)
{
	struct call c = {0};
	int which = (int)number(&at), length = 0;
	if (which == 0) /* made by a callback; the replay has its own callbacks */
		return;
	if (sscanf(at, " %127s %d%n", c.name, &c.was, &length) != 2)
		broken("it can't be read");
	if (strncmp(c.name, "cu", 2) || !isupper((unsigned char)c.name[2])) /* the library has functions of other names, too */
		broken("that is no function of CUDA's");
	at += length;
	while (*at == ' ' && c.argumentCount < WORDS) {
		at++;
		c.arguments[c.argumentCount++] = argument_at(&at, c.name);
	}
	if (!(c.function = dlsym(library, c.name))) {
		count.missing++;
		differs(c.name, "there is no such function");
		return;
	}
	have_made(which, &c);
	compare(&c);
	const struct argument *linked = &c.arguments[1];
	if (strstr(c.name, "cuLinkComplete") == c.name && linked->memory && (linked->out == HANDLES || linked->bytes >= sizeof lastLinked))
		memcpy(&lastLinked, linked->memory, sizeof lastLinked);
}

/* Data that have arrived at the host, by a copy that returned earlier, or by kernels. */
static void arrived(const char *at, bool byKernel)
{
	uint64_t was = hex(&at);
	expect(&at, ' ');
	size_t bytes = number(&at);
	expect(&at, ' ');
	uint64_t want = hex(&at);
	void *p = byKernel ? host_memory(was, bytes) : NULL;
	for (size_t i = laterCount; !p && i-- > 0;)
		if (later[i].was == was && later[i].bytes >= bytes)
			p = later[i].is;
	if (!p || !same_data(p, bytes, want)) {
		count.data++;
		differs(byKernel ? "host memory" : "a copy", "other data");
	}
}

static bool begins(const char **line, const char *word)
{
	size_t n = strlen(word);
	if (strncmp(*line, word, n))
		return false;
	*line += n;
	return true;
}

static int usage(void)
{
	fputs("usage: replay [--all] [--within PART] FILE\n"
	      "  --all          print other answers, too, such as a device's attributes\n"
	      "  --within PART  floating-point numbers may be so far apart, in parts of the greater\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option known_options[] = {{"all", no_argument, NULL, 'a'}, {"within", required_argument, NULL, 'w'}, {0}};
	for (int o; (o = getopt_long(argc, argv, "", known_options, NULL)) != -1;)
		switch (o) {
		case 'a': all = true; break;
		case 'w': within = strtod(optarg, NULL); break;
		default: return usage();
		}
	if (optind + 1 != argc)
		return usage();
	FILE *f = fopen(argv[optind], "r");
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!f || !library) {
		fprintf(stderr, "replay: %s\n", f ? dlerror() : "the file can't be read");
		return 2;
	}
	char *line = NULL;
	size_t room = 0;
	for (ssize_t n; (n = getline(&line, &room, f)) > 0;) {
		const char *at = line;
		lineNumber++;
		if (line[n - 1] == '\n')
			line[n - 1] = 0;
		if (lineNumber == 1) {
			if (strcmp(line, "pegasus-calls 1"))
				broken("it is no recording of version 1");
		} else if (begins(&at, "data "))
			read_blob(at);
		else if (begins(&at, "host "))
			data_at(&at);
		else if (begins(&at, "got "))
			arrived(at, false);
		else if (begins(&at, "seen "))
			arrived(at, true);
		else if (begins(&at, "linked "))
			learn(hex(&at), (uintptr_t)lastLinked, 1);
		else if (*line && *line != '#')
			read_call(library, line);
	}
	printf("%d calls: %d results, %d pieces of data and %d other answers differ, %d functions are missing\n", count.calls, count.results, count.data,
		count.others, count.missing);
	fflush(stdout);
	_exit(count.results || count.data || count.missing);
}
