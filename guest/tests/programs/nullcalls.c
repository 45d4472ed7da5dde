/*
 * Calls every exported symbol with null pointers, absurd handles and absurd
 * numbers, in child processes, and prints the results.
 *
 *	nullcalls MODE <TABLE
 *
 * MODE is "none" (no cuInit), "init" or "context" (a context is current). A line
 * of TABLE is a symbol and a letter per argument: p pointer, h handle, s number,
 * d device address, c callback. A line of output is the symbol, the number of
 * the pattern, and the result, or "crash" and the signal.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

enum { ARGUMENTS = 16, BUFFER = 1 << 16 };

struct pattern {
	int buffer; /* pointers: 0 null, 1 to zeroed memory */
	uint64_t handle, number, device;
};

static const struct pattern patterns[] = {
	{0, 0, 0, 0},
	{0, UINT64_MAX, UINT64_MAX, UINT64_MAX},
	{0, 0xdeadbeef, INT32_MAX, 0x5eadbeef0000},
	{0, 1, 1, 1},
	{1, 0, 0, 0},
	{1, UINT64_MAX, UINT64_MAX, UINT64_MAX},
	{1, 0xdeadbeef, (uint64_t)1 << 62, 0x7fffffffffff},
	{1, 1, 1, 1},
	{1, 2, 2, 4096},
	{1, 0x110000100001, INT32_MAX, 0x200000000000},
	{1, 0, 33, 0x300000000000},
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* The table. Some symbols share a child process, since its begin takes longest. */
enum { SYMBOLS = 2000, SYMBOLS_PER_CHILD = 8 };
static struct line {
	char symbol[128], kinds[64];
} lines[SYMBOLS];
static int count;

/* The call in progress, shared by parent and children. */
static struct progress {
	int line, pattern;
} *progress;

static void callback(void) {}

typedef int (*any_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static int call(any_function f, const char *kinds, const struct pattern *p)
{
	static uint8_t buffer[ARGUMENTS][BUFFER];
	uint64_t a[ARGUMENTS] = {0};
	for (int i = 0; kinds[i] && i < ARGUMENTS; i++)
		switch (kinds[i]) {
		case 'p':
			if (p->buffer)
				a[i] = (uint64_t)(uintptr_t)memset(buffer[i], 0, BUFFER);
			break;
		case 'h':
			a[i] = p->handle;
			break;
		case 'd':
			a[i] = p->device;
			break;
		case 'c':
			a[i] = p->buffer ? (uint64_t)(uintptr_t)callback : 0;
			break;
		default:
			a[i] = p->number;
		}
	return f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

static CUcontext context;

static int prepare(const char *mode)
{
	if (strcmp(mode, "none") == 0)
		return 0;
	if (cuInit(0) != CUDA_SUCCESS)
		return 1;
	return strcmp(mode, "context") == 0 && cuCtxCreate(&context, 0, 0) != CUDA_SUCCESS;
}

/* Makes the calls from the one in progress to those of line LAST. */
static void child(const char *mode, int last)
{
	char text[200];
	if (prepare(mode)) {
		fprintf(stderr, "cannot even begin\n");
		_exit(1);
	}
	for (; progress->line <= last; progress->line++) {
		const struct line *l = &lines[progress->line];
		any_function f = (any_function)dlsym(RTLD_DEFAULT, l->symbol);
		/* The symbol before may have popped the context, or destroyed it. */
		if (!f || (context && cuCtxSetCurrent(context) != CUDA_SUCCESS && prepare(mode))) {
			fprintf(stderr, "%s: cannot even begin\n", l->symbol);
			_exit(1);
		}
		alarm(100);
		for (progress->pattern = 0; progress->pattern < PATTERNS; progress->pattern++) {
			int n = snprintf(text, sizeof text, "%s %d %d\n", l->symbol, progress->pattern, call(f, l->kinds, &patterns[progress->pattern]));
			if (write(STDOUT_FILENO, text, (size_t)n) != n)
				_exit(1);
		}
	}
	_exit(0);
}

/* Returns the last symbol of the first one's child. cuInit has a child of its own: nothing takes a cuInit back. */
static int share(int first)
{
	int last = first;
	while (last + 1 < count && last + 1 - first < SYMBOLS_PER_CHILD && strcmp(lines[last].symbol, "cuInit") && strcmp(lines[last + 1].symbol, "cuInit"))
		last++;
	return last;
}

int main(int argc, char **argv)
{
	char text[256];
	int bad = 0;
	if (argc != 2)
		return 2;
	progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	while (count < SYMBOLS && fgets(text, sizeof text, stdin))
		count += sscanf(text, "%127s %63s", lines[count].symbol, lines[count].kinds) >= 1;
	while (progress->line < count) {
		int last = share(progress->line);
		fflush(NULL);
		pid_t id = fork();
		if (id == 0)
			child(argv[1], last);
		int status;
		if (id < 0 || waitpid(id, &status, 0) != id)
			return 2;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		bad = 1;
		printf("%s %d %s %d\n", lines[progress->line].symbol, progress->pattern, WIFSIGNALED(status) ? "crash" : "end",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		progress->line++;
	}
	return bad;
}
