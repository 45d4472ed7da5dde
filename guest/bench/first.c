/*
 * first measures the cost of a first call after all parties have gone to sleep: a call that the host answers at once
 * (call), and waking alone: as few bytes to another process and back over a unix socket (echo), or to the process at
 * the other end of a device and back, such as a port of a virtual machine (its path). They take turns, so that all run
 * under the same conditions. Prints the times in microseconds, one line for each.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum { Most = 8 };

static CUstream stream;

/* A measured operation: a call, or a byte to a descriptor and back. */
struct thing {
	const char *name;
	int fd; /* -1: a call */
	double *micros;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void do_once(const struct thing *t)
{
	char b = 0;

	if (t->fd < 0)
		CHECK(cuStreamSynchronize(stream));
	else if (write(t->fd, &b, 1) != 1 || read(t->fd, &b, 1) != 1)
		fail(t->name);
}

/* Starts another process, which echoes its input until this process ends. */
static int start_echo(void)
{
	int pair[2];
	char b;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		fail("socketpair");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child > 0) {
		close(pair[1]);
		return pair[0];
	}
	close(pair[0]);
	while (read(pair[1], &b, 1) == 1)
		if (write(pair[1], &b, 1) != 1)
			break;
	_exit(0);
}

static int open_thing(const char *name)
{
	if (strcmp(name, "call") == 0)
		return -1;
	if (strcmp(name, "echo") == 0)
		return start_echo();
	int fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fail(name);
	return fd;
}

static void start_calls(void)
{
	CUdevice device;
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void measure(struct thing *things, int n, int count, double seconds)
{
	struct timespec pause = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };

	for (int i = -1; i < count; i++) /* the first turn doesn't count */
		for (struct thing *t = things; t < things + n; t++) {
			nanosleep(&pause, NULL);
			int64_t begin = bench_now();
			do_once(t);
			if (i >= 0)
				t->micros[i] = (double)(bench_now() - begin) / 1e3;
		}
	for (struct thing *t = things; t < things + n; t++) {
		printf("%s after %g s:", t->name, seconds);
		for (int i = 0; i < count; i++)
			printf(" %.0f", t->micros[i]);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	struct thing things[Most];
	int n = argc - 3, count = argc > 3 ? atoi(argv[2]) : 0;
	double seconds = argc > 3 ? atof(argv[1]) : 0;

	if (n < 1 || n > Most || count < 1 || seconds < 0) {
		fputs("usage: first SECONDS COUNT call|echo|DEVICE...\n", stderr);
		return 2;
	}
	for (int i = 0; i < n; i++) { /* forks, so it runs before the driver starts */
		const char *name = argv[3 + i];
		things[i] = (struct thing){ name, open_thing(name), bench_allocate((size_t)count, sizeof(double)) };
	}
	for (int i = 0; i < n; i++)
		if (things[i].fd < 0) {
			start_calls();
			break;
		}
	measure(things, n, count, seconds);
	return 0;
}
