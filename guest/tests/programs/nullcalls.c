/*
 * Calls every exported symbol with null pointers, absurd handles and absurd
 * numbers, each symbol in a child process of its own, and prints the results.
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

static int *current; /* the child's current pattern, shared with its parent */

static void callback(void) {}

typedef int (*any_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
	uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static int call(any_function f, const char *kinds, const struct pattern *p)
{
	static uint8_t buffer[ARGUMENTS][BUFFER];
	uint64_t a[ARGUMENTS] = {0};
	memset(buffer, 0, sizeof buffer);
	for (int i = 0; kinds[i] && i < ARGUMENTS; i++)
		switch (kinds[i]) {
		case 'p':
			a[i] = p->buffer ? (uint64_t)(uintptr_t)buffer[i] : 0;
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

static int prepare(const char *mode)
{
	CUcontext context;
	if (strcmp(mode, "none") == 0)
		return 0;
	if (cuInit(0) != CUDA_SUCCESS)
		return 1;
	return strcmp(mode, "context") == 0 && cuCtxCreate(&context, 0, 0) != CUDA_SUCCESS;
}

static void child(const char *mode, const char *symbol, const char *kinds)
{
	any_function f = (any_function)dlsym(RTLD_DEFAULT, symbol);
	char line[200];
	if (!f || prepare(mode)) {
		fprintf(stderr, "%s: cannot even begin\n", symbol);
		_exit(1);
	}
	alarm(100);
	for (*current = 0; *current < PATTERNS; ++*current) {
		int n = snprintf(line, sizeof line, "%s %d %d\n", symbol, *current, call(f, kinds, &patterns[*current]));
		if (write(STDOUT_FILENO, line, (size_t)n) != n)
			_exit(1);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	char line[256], symbol[128], kinds[64];
	int bad = 0;
	if (argc != 2)
		return 2;
	current = mmap(NULL, sizeof *current, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	while (fgets(line, sizeof line, stdin)) {
		kinds[0] = 0;
		if (sscanf(line, "%127s %63s", symbol, kinds) < 1)
			continue;
		fflush(NULL);
		pid_t id = fork();
		if (id == 0)
			child(argv[1], symbol, kinds);
		int status;
		if (id < 0 || waitpid(id, &status, 0) != id)
			return 2;
		if (WIFSIGNALED(status)) {
			printf("%s %d crash %d\n", symbol, *current, WTERMSIG(status));
			bad = 1;
		} else if (WEXITSTATUS(status) != 0) {
			printf("%s %d end %d\n", symbol, *current, WEXITSTATUS(status));
			bad = 1;
		}
	}
	return bad;
}
