/* Forks before and after cuInit, and the state of the connection in children. */
#include <stdint.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void use(void)
{
	CUdevice device;
	CUcontext context;
	CUdeviceptr d;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuMemAlloc(&d, 4096));
	OK(cuMemsetD8(d, 1, 4096));
	OK(cuCtxSynchronize());
}

/* Calls in a child of a process that has used CUDA fail. */
static void refused(void)
{
	CUdevice device;
	CUcontext context;
	CUdeviceptr d = 0;
	int n;
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGet(&device, 0));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxPopCurrent(&context));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&d, 1));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemFree(d));
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void child(void (*what)(void))
{
	int status = -1;
	fflush(NULL);
	pid_t id = fork();
	CLAIM(id >= 0);
	if (id == 0) {
		what();
		exit(0);
	}
	CLAIM(waitpid(id, &status, 0) == id && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void grandchild(void)
{
	refused();
	child(refused);
}

static int open_files(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int inherited, own = -1;
static void count_files(void) { CLAIM(open_files() == inherited - 1); }
static void look_for_own(void) { CLAIM(fcntl(own, F_GETFD) >= 0); }

/* Puts a file of the program in the place of the socket, which it may have closed. */
static void take_place(void)
{
	struct stat s;
	for (own = 3; fstat(own, &s) != 0 || !S_ISSOCK(s.st_mode); own++)
		CLAIM(own < 1024);
	int file = open("/dev/null", O_RDONLY);
	CLAIM(file >= 0 && dup2(file, own) == own);
}

int main(void)
{
	child(use); /* before cuInit: an ordinary process */
	child(use);
	use();
	child(refused);
	child(grandchild);
	inherited = open_files();
	child(count_files); /* the socket is closed in the child */
	use(); /* the parent continues */
	take_place();
	child(look_for_own); /* the program's own file stays open */
	puts("forks: fine");
	return 0;
}
