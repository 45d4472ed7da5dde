/*
 * A driver for tests. Its contexts occupy device memory, as a GPU's do, so all processes have less. Like NVIDIA's, it
 * listens at an abstract socket and names its threads. It has clusters, and requires that grids of 2 and 16 blocks are
 * launched as one cluster.
 */
#define __CUDA_API_VERSION_INTERNAL
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define EXPORT __attribute__((visibility("default")))
#define TAKES ((size_t)24 << 20)

/* A file with a byte for each context. */
static const char *file(void) { return getenv("PEGASUS_TEST_CONTEXTS"); }

static int listens(void)
{
	static int sockets;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "cuda-uvmfd-test-%d-%d", getpid(), sockets++);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return fd >= 0 && bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 && listen(fd, 16) == 0;
}

static void *wait(void *data)
{
	while (poll(NULL, 0, -1) <= 0)
		continue;
	return data;
}

/* NVIDIA's has threads, and gives them names. */
static int hasThreads(void)
{
	pthread_t t;
	return pthread_create(&t, NULL, wait, NULL) == 0 && pthread_setname_np(t, "cuda-EvtHandlr") == 0;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice d)
{
	if (!listens() || !hasThreads())
		return CUDA_ERROR_OPERATING_SYSTEM;
	CUresult r = NEXT(cuCtxCreate_v2)(c, flags, d);
	int fd = r == CUDA_SUCCESS && file() ? open(file(), O_WRONLY | O_APPEND) : -1;
	if (fd >= 0 && (write(fd, "c", 1) != 1 || close(fd) != 0))
		return CUDA_ERROR_UNKNOWN;
	return r;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
	struct stat s = {0};
	CUresult r = NEXT(cuMemGetInfo_v2)(left, total);
	if (r == CUDA_SUCCESS && file() && stat(file(), &s) == 0)
		*left -= (size_t)s.st_size * TAKES;
	return r;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice d)
{
	CUresult r = NEXT(cuDeviceGetAttribute)(value, a, d);
	if (r == CUDA_SUCCESS && a == CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
		*value = 1;
	return r;
}

static CUfunction large; /* that may have large clusters */

EXPORT CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value)
{
	if (a != CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
		return NEXT(cuFuncSetAttribute)(f, a, value);
	large = value ? f : NULL;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra)
{
	if (x == 2 || x == 16)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return NEXT(cuLaunchKernel)(f, x, y, z, bx, by, bz, shared, s, params, extra);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	if (c->numAttrs != 1 || c->attrs[0].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || c->attrs[0].value.clusterDim.x != c->gridDimX ||
		c->attrs[0].value.clusterDim.y != 1 || c->attrs[0].value.clusterDim.z != 1 || (c->gridDimX > 8 && f != large))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return NEXT(cuLaunchKernel)(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, params, extra);
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *dims, const cuuint64_t *strides,
	const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave i, CUtensorMapSwizzle s, CUtensorMapL2promotion p, CUtensorMapFloatOOBfill f)
{
	const cuuint64_t said[16] = {
		(cuuint64_t)at, rank, dims[0], dims[rank - 1], strides[0], strides[rank - 2], box[0], box[rank - 1], steps[0], steps[rank - 1], (cuuint64_t)type, (cuuint64_t)i,
		(cuuint64_t)s, (cuuint64_t)p, (cuuint64_t)f, 1,
	};
	for (int k = 0; k < 16; k++)
		m->opaque[k] = said[k];
	return (size_t)m % 64 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuTensorMapEncodeIm2col(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *dims, const cuuint64_t *strides,
	const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave i, CUtensorMapSwizzle s,
	CUtensorMapL2promotion p, CUtensorMapFloatOOBfill f)
{
	const cuuint64_t said[16] = {
		(cuuint64_t)at, rank, dims[rank - 1], strides[rank - 2], (cuuint64_t)lower[0], (cuuint64_t)upper[rank - 3], channels, pixels, steps[rank - 1], (cuuint64_t)type,
		(cuuint64_t)i, (cuuint64_t)s, (cuuint64_t)p, (cuuint64_t)f, 2, 2,
	};
	for (int k = 0; k < 16; k++)
		m->opaque[k] = said[k];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuTensorMapReplaceAddress(CUtensorMap *m, void *at)
{
	m->opaque[0] = (cuuint64_t)at;
	return CUDA_SUCCESS;
}
