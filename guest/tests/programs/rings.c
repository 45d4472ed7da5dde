/*
 * Threads that call at the same time, each time after the worker has fallen asleep. With an argument, the program uses
 * the number of the library's socket for a file of its own: no message may arrive there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 20 };

static CUcontext context;
static pthread_barrier_t barrier;

static void *work(void *unused)
{
	CUdeviceptr d;
	(void)unused;
	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < ROUNDS; i++) {
		usleep(60000);
		pthread_barrier_wait(&barrier);
		OK(cuMemAlloc(&d, 4096));
		OK(cuMemFree(d));
	}
	return NULL;
}

static int socket_of_library(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		int type = 0;
		socklen_t length = sizeof type;
		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET)
			return fd;
	}
	return -1;
}

int main(int argc, char **argv)
{
	pthread_t id[THREADS];
	CUdevice device;
	int pair[2];
	char byte;
	(void)argv;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	int fd = socket_of_library(), kept = dup(fd);
	CLAIM(kept >= 0);
	CLAIM(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	if (argc > 1)
		CLAIM(dup2(pair[0], fd) == fd);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		CLAIM(pthread_create(&id[i], NULL, work, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	CLAIM(recv(pair[1], &byte, 1, MSG_DONTWAIT) < 0);
	OK(cuCtxDestroy(context));
	return 0;
}
