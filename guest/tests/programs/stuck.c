/* A thread prints a kernel's output to a full stdout: other threads continue, also when it is cancelled. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"

static void *synchronize(void *context)
{
	OK(cuCtxSetCurrent(context));
	OK(cuCtxSynchronize());
	return NULL;
}

static void *drain(void *pipe)
{
	char bytes[4096];
	while (read(*(int *)pipe, bytes, sizeof bytes) > 0)
		;
	return NULL;
}

int main(void)
{
	CUdevice device;
	CUcontext context;
	pthread_t printing, draining;
	int ends[2];
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	CLAIM(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
	CLAIM(pthread_create(&printing, NULL, synchronize, context) == 0);
	struct pollfd full = {.fd = ends[1], .events = POLLOUT};
	while (poll(&full, 1, 0) == 1)
		usleep(1000);
	OK(cuCtxSynchronize()); /* otherwise the output would not be drained */
	CLAIM(pthread_cancel(printing) == 0);
	CLAIM(pthread_create(&draining, NULL, drain, &ends[0]) == 0);
	CLAIM(pthread_join(printing, NULL) == 0);
	OK(cuCtxSynchronize());
	_exit(0); /* the draining thread never ends */
}
