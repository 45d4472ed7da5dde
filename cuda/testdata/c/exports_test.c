/*
 * The exports with a core that only remembers what it was given: aliases
 * convert, variants choose the right default stream, stubs say so.
 */
#define __CUDA_API_VERSION_INTERNAL
#define PEGASUS_CUDA_ALL
#include "core/zz_impl.h"

#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s\n", __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

CUresult entry_result;
static const char *unsupported;

CUresult pg_unsupported(const char *symbol)
{
	unsupported = symbol;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUstream stream_seen;
static CUDA_MEMCPY2D copy_seen;
static CUDA_ARRAY3D_DESCRIPTOR array_seen;
static CUdeviceptr address = 0x1000;
static size_t bytes = 77;
static CUdeviceptr device_seen;
static size_t count_seen;
static unsigned int flags_seen;
static void *fake_array = &failures;

CUresult pg_cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, CUstream hStream, void **params, void **extra)
{
	(void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params, (void)extra;
	stream_seen = hStream;
	return CUDA_SUCCESS;
}

CUresult pg_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	(void)f, (void)params, (void)extra;
	stream_seen = config->hStream;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
	(void)src;
	device_seen = dst;
	count_seen = n;
	stream_seen = stream;
	return CUDA_SUCCESS;
}

CUresult pg_cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	copy_seen = *copy;
	stream_seen = stream;
	return CUDA_SUCCESS;
}

CUresult pg_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	array_seen = *descriptor;
	*array = (CUarray)fake_array;
	return CUDA_SUCCESS;
}

CUresult pg_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)
{
	(void)array;
	*descriptor = array_seen;
	return CUDA_SUCCESS;
}

CUresult pg_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *size, CUmodule module, const char *name)
{
	(void)module, (void)name;
	if (dptr)
		*dptr = address;
	if (size)
		*size = bytes;
	return CUDA_SUCCESS;
}

CUresult pg_cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	(void)context, (void)device;
	flags_seen = flags;
	return CUDA_SUCCESS;
}

static void streams(void)
{
	CUstream mine = (CUstream)(uintptr_t)0x40;
	cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	CHECK(stream_seen == NULL);
	cuLaunchKernel_ptsz(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	CHECK(stream_seen == CU_STREAM_PER_THREAD);
	cuLaunchKernel_ptsz(NULL, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, NULL, NULL);
	CHECK(stream_seen == CU_STREAM_LEGACY);
	cuLaunchKernel_ptsz(NULL, 1, 1, 1, 1, 1, 1, 0, mine, NULL, NULL);
	CHECK(stream_seen == mine);
	CUlaunchConfig config = {0};
	CHECK(!cuLaunchKernelEx_ptsz(&config, NULL, NULL, NULL));
	CHECK(stream_seen == CU_STREAM_PER_THREAD && !config.hStream);
	CHECK(cuLaunchKernelEx_ptsz(NULL, NULL, NULL, NULL) == CUDA_ERROR_INVALID_VALUE);
	cuMemcpyHtoD_v2(1, NULL, 2);
	CHECK(stream_seen == CU_STREAM_LEGACY);
	cuMemcpyHtoD_v2_ptds(1, NULL, 2);
	CHECK(stream_seen == CU_STREAM_PER_THREAD);
	cuMemcpyHtoD(0xfffffff0u, NULL, 0xffffffffu);
	CHECK(stream_seen == CU_STREAM_LEGACY && device_seen == 0xfffffff0u && count_seen == 0xffffffffu);
}

static void structures(void)
{
	int host;
	CUDA_MEMCPY2D_v1 copy = {
		.srcXInBytes = 1, .srcY = 2, .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = &host, .srcPitch = 3,
		.dstXInBytes = 4, .dstY = 5, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = 0xf0000000u, .dstPitch = 6,
		.WidthInBytes = 7, .Height = 0xffffffffu,
	};
	CHECK(!cuMemcpy2D(&copy));
	CHECK(copy_seen.srcXInBytes == 1 && copy_seen.srcY == 2 && copy_seen.srcMemoryType == CU_MEMORYTYPE_HOST);
	CHECK(copy_seen.srcHost == &host && copy_seen.srcPitch == 3 && copy_seen.dstXInBytes == 4 && copy_seen.dstY == 5);
	CHECK(copy_seen.dstDevice == 0xf0000000u && copy_seen.dstPitch == 6 && copy_seen.WidthInBytes == 7 && copy_seen.Height == 0xffffffffu);
	CHECK(cuMemcpy2D(NULL) == CUDA_ERROR_INVALID_VALUE);

	CUarray array = NULL;
	CUDA_ARRAY3D_DESCRIPTOR_v1 made = {10, 20, 30, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SURFACE_LDST}, read;
	memset(&read, 0xff, sizeof read);
	CHECK(!cuArray3DCreate(&array, &made) && array == (CUarray)fake_array);
	CHECK(!cuArray3DGetDescriptor(&read, array));
	CHECK(!memcmp(&made, &read, sizeof read));
	array_seen.Width = (size_t)1 << 40;
	CHECK(!cuArray3DGetDescriptor(&read, array) && read.Width == UINT32_MAX);
}

static void narrow(void)
{
	CUdeviceptr_v1 p = 1;
	unsigned int n = 1;
	CHECK(!cuModuleGetGlobal(&p, &n, NULL, "x") && p == 0x1000 && n == 77);
	CHECK(!cuModuleGetGlobal(NULL, &n, NULL, "x") && !cuModuleGetGlobal(&p, NULL, NULL, "x"));
	address = UINT64_C(1) << 32;
	p = 5;
	CHECK(cuModuleGetGlobal(&p, &n, NULL, "x") == CUDA_ERROR_NOT_SUPPORTED && p == 5);
	bytes = (size_t)1 << 33;
	CHECK(!cuModuleGetGlobal(NULL, &n, NULL, "x") && n == UINT32_MAX);
}

static void lacking(void)
{
	CUcontext context;
	CUctxCreateParams params = {0};
	CHECK(!cuCtxCreate_v4(&context, NULL, 9, 0) && flags_seen == 9);
	flags_seen = 0;
	CHECK(cuCtxCreate_v4(&context, &params, 9, 0) == CUDA_ERROR_NOT_SUPPORTED && !flags_seen);
	CHECK(!cuCtxCreate_v3(&context, NULL, 0, 8, 0) && flags_seen == 8);
	CHECK(cuCtxCreate_v3(&context, NULL, 1, 8, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

static void entry(void)
{
	const char *text = NULL;
	unsupported = NULL;
	CHECK(cuDestroyExternalSemaphore(NULL) == CUDA_ERROR_NOT_SUPPORTED && unsupported && !strcmp(unsupported, "cuDestroyExternalSemaphore"));
	CHECK(cuMemAlloc(NULL, 1) == CUDA_ERROR_NOT_SUPPORTED && !strcmp(unsupported, "cuMemAlloc"));
	CHECK(!cuProfilerStart());
	entry_result = CUDA_ERROR_NOT_INITIALIZED;
	unsupported = NULL;
	CHECK(cuDestroyExternalSemaphore(NULL) == CUDA_ERROR_NOT_INITIALIZED && !unsupported);
	CHECK(cuMemFree_v2(1) == CUDA_ERROR_NOT_INITIALIZED && cuProfilerStart() == CUDA_ERROR_NOT_INITIALIZED);
	CHECK(!cuInit(0) && !cuGetErrorName(CUDA_ERROR_NOT_READY, &text) && !strcmp(text, "CUDA_ERROR_NOT_READY"));
	CHECK(!cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) && !strcmp(text, "out of memory"));
	CHECK(!cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text) && !strcmp(text, "an illegal memory access was encountered"));
	CHECK(!cuGetErrorString(CUDA_ERROR_NO_BINARY_FOR_GPU, &text) && !strcmp(text, "no kernel image is available for execution on the device"));
	CHECK(!cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &text) && !strcmp(text, "unspecified launch failure"));
	for (int i = 0; i < 1000; i++) {
		const char *name = NULL;
		CHECK(cuGetErrorName((CUresult)i, &name) == cuGetErrorString((CUresult)i, &text) && !name == !text);
	}
	CHECK(cuGetErrorString((CUresult)4711, &text) == CUDA_ERROR_INVALID_VALUE && !text);
	CHECK(cuGetErrorName(CUDA_SUCCESS, NULL) == CUDA_ERROR_INVALID_VALUE);
	entry_result = CUDA_SUCCESS;
}

int main(void)
{
	streams();
	structures();
	narrow();
	lacking();
	entry();
	return failures != 0;
}
