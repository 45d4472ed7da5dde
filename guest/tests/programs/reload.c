/* Opens and closes the library repeatedly, as ffmpeg does, with work in between. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda.h"

#define NEED(condition) do { if (!(condition)) { fprintf(stderr, "%d: %s\n", __LINE__, #condition); exit(1); } } while (0)

static int open_files(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void round_trip(int i)
{
	void *lib = dlopen("libcuda.so.1", RTLD_LAZY);
	NEED(lib);
	CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(lib, "cuInit");
	CUresult (*create)(CUcontext *, unsigned, CUdevice) =
		(CUresult(*)(CUcontext *, unsigned, CUdevice))dlsym(lib, "cuCtxCreate_v2");
	CUresult (*destroy)(CUcontext) = (CUresult(*)(CUcontext))dlsym(lib, "cuCtxDestroy_v2");
	CUresult (*alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(lib, "cuMemAlloc_v2");
	CUcontext context;
	CUdeviceptr d;
	NEED(init && create && destroy && alloc);
	NEED(init(0) == CUDA_SUCCESS && create(&context, 0, 0) == CUDA_SUCCESS);
	NEED(alloc(&d, 4096) == CUDA_SUCCESS && destroy(context) == CUDA_SUCCESS);
	NEED(i % 2 || dlclose(lib) == 0);
	dlclose(lib);
}

int main(void)
{
	round_trip(0);
	int files = open_files();
	for (int i = 1; i < 300; i++)
		round_trip(i);
	NEED(open_files() == files);
	puts("reload: fine");
	return 0;
}
