/*
 * Threads that are cancelled, or end, inside the library: in cuInit, while the daemon is slow to answer, and in a
 * callback. No other thread is delayed.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void *begin(void *p)
{
	cuInit(0);
	return p;
}

static void leave(CUstream s, CUresult r, void *p)
{
	(void)s;
	(void)r;
	(void)p;
	pthread_exit(NULL);
}

static void count(void *n) { __atomic_add_fetch((int *)n, 1, __ATOMIC_RELAXED); }

int main(void)
{
	pthread_t id;
	CUdevice device;
	CUcontext context;
	int ran = 0, status = -1;
	alarm(100);
	CLAIM(pthread_create(&id, NULL, begin, NULL) == 0);
	usleep(100000);
	CLAIM(pthread_cancel(id) == 0);
	CLAIM(pthread_join(id, NULL) == 0);
	OK(cuInit(0));
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuStreamAddCallback(NULL, leave, NULL, 0));
	OK(cuLaunchHostFunc(NULL, count, &ran));
	while (__atomic_load_n(&ran, __ATOMIC_RELAXED) == 0)
		usleep(1000);
	return 0;
}
