/*
 * Copies of all kinds and sizes, each checked byte by byte: pageable, pinned and managed memory, lines, boxes and
 * arrays, and changes of the source right after the call.
 */
#include <stdint.h>

#include "check.h"

enum { MOST = 5 << 20 };

static uint8_t source[MOST + 64], target[MOST + 64];

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (uint8_t)(seed >> 24);
	}
}

static const size_t sizes[] = {1, 7, 96, 97, 224, 225, 4096, 4097, 65536, 131072, 131073, 1 << 20, (1 << 20) + 3, MOST};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* To the device and back through pageable memory, at odd addresses. */
static void lines(CUdeviceptr d, CUstream stream)
{
	for (int i = 0; i < SIZES; i++) {
		size_t n = sizes[i];
		fill(source, n + 64, (uint32_t)n);
		memset(target, 0xee, n + 64);
		OK(cuMemcpyHtoD(d + 3, source + 1, n));
		OK(cuMemcpyDtoH(target + 5, d + 3, n));
		CLAIM(memcmp(source + 1, target + 5, n) == 0 && target[4] == 0xee && target[5 + n] == 0xee);

		fill(source, n + 64, (uint32_t)n + 1);
		OK(cuMemcpyHtoDAsync(d, source + 1, n, stream));
		uint8_t first = source[1], last = source[n];
		memset(source, 0, n + 64); /* it has been read */
		OK(cuMemcpyDtoHAsync(target, d, n, stream));
		CLAIM(target[0] == first && target[n - 1] == last); /* the target is complete */
		fill(source, n + 64, (uint32_t)n + 1);
		CLAIM(memcmp(source + 1, target, n) == 0);

		memset(target, 0, n);
		OK(cuMemcpy((CUdeviceptr)(uintptr_t)target, d, n)); /* memory spaces determined by address */
		CLAIM(memcmp(source + 1, target, n) == 0);
	}
}

static void within_device(CUdeviceptr a, CUdeviceptr b)
{
	fill(source, MOST, 99);
	OK(cuMemcpyHtoD(a, source, MOST));
	OK(cuMemcpyDtoD(b, a, MOST));
	OK(cuMemcpyDtoH(target, b, MOST));
	CLAIM(memcmp(source, target, MOST) == 0);
}

static void pinned(CUdeviceptr d, CUstream stream)
{
	uint8_t *p;
	CUdeviceptr mapped;
	unsigned int flags;
	OK(cuMemHostAlloc((void **)&p, MOST, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&mapped, p, 0));
	CLAIM(mapped == (CUdeviceptr)(uintptr_t)p);
	OK(cuMemHostGetFlags(&flags, p));
	CLAIM(flags == CU_MEMHOSTALLOC_DEVICEMAP);
	fill(p, MOST, 5);
	OK(cuMemcpyHtoDAsync(d, p, MOST, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(target, d, MOST));
	CLAIM(memcmp(p, target, MOST) == 0);
	memset(p, 0, MOST);
	OK(cuMemcpyDtoHAsync(p, d, MOST, stream));
	OK(cuStreamSynchronize(stream));
	CLAIM(memcmp(p, target, MOST) == 0);
	OK(cuMemsetD8(mapped, 0x5a, 1000));
	CLAIM(p[0] == 0x5a && p[999] == 0x5a && p[1000] == target[1000]);
	OK(cuMemFreeHost(p));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(p));
}

static void managed(void)
{
	CUdeviceptr m;
	uint32_t *words;
	OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
	words = (uint32_t *)(uintptr_t)m;
	OK(cuMemsetD32(m, 0xdeadbeef, 1024));
	OK(cuCtxSynchronize());
	CLAIM(words[0] == 0xdeadbeef && words[1023] == 0xdeadbeef);
	OK(cuMemFree(m));
}

static void box(CUdeviceptr d, size_t width, size_t height, size_t hostPitch, size_t devicePitch)
{
	fill(source, hostPitch * height, (uint32_t)width);
	memset(target, 0xcc, hostPitch * height);
	CUDA_MEMCPY2D up = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source, .srcPitch = hostPitch, .srcXInBytes = 2, .srcY = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .dstPitch = devicePitch, .dstXInBytes = 1, .dstY = 2,
		.WidthInBytes = width - 2, .Height = height - 2,
	};
	CUDA_MEMCPY2D down = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = d, .srcPitch = devicePitch, .srcXInBytes = 1, .srcY = 2,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = target, .dstPitch = hostPitch, .dstXInBytes = 2, .dstY = 1,
		.WidthInBytes = width - 2, .Height = height - 2,
	};
	OK(cuMemcpy2DAsync(&up, NULL));
	OK(cuMemcpy2D(&down));
	for (size_t y = 0; y < height; y++) {
		const uint8_t *s = source + y * hostPitch, *t = target + y * hostPitch;
		int inside = y >= 1 && y < height - 1;
		CLAIM(t[0] == 0xcc && t[1] == 0xcc);
		CLAIM(inside ? memcmp(s + 2, t + 2, width - 2) == 0 : t[2] == 0xcc);
		CLAIM(hostPitch == width || t[width] == 0xcc);
	}
}

static void volume(CUdeviceptr d)
{
	enum { W = 100, H = 20, D = 6 };
	fill(source, W * H * D, 1);
	memset(target, 0, W * H * D);
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source, .srcPitch = W, .srcHeight = H,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .dstPitch = 128, .dstHeight = 32,
		.WidthInBytes = W, .Height = H, .Depth = D,
	};
	OK(cuMemcpy3D(&c));
	CUDA_MEMCPY3D back = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = d, .srcPitch = 128, .srcHeight = 32,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = target, .dstPitch = W, .dstHeight = H,
		.WidthInBytes = W, .Height = H, .Depth = D,
	};
	OK(cuMemcpy3D(&back));
	CLAIM(memcmp(source, target, W * H * D) == 0);
}

static void array(void)
{
	enum { W = 320, H = 200 };
	CUarray a;
	CUDA_ARRAY_DESCRIPTOR d = {.Width = W, .Height = H, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1}, got;
	OK(cuArrayCreate(&a, &d));
	OK(cuArrayGetDescriptor(&got, a));
	CLAIM(got.Width == W && got.Height == H && got.Format == d.Format && got.NumChannels == 1);
	fill(source, W * H, 3);
	memset(target, 0, W * H);
	CUDA_MEMCPY2D up = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source, .srcPitch = W, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstArray = a, .WidthInBytes = W, .Height = H,
	};
	CUDA_MEMCPY2D down = {
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = target,
		.dstPitch = W, .WidthInBytes = W, .Height = H,
	};
	OK(cuMemcpy2D(&up));
	OK(cuMemcpy2D(&down));
	CLAIM(memcmp(source, target, W * H) == 0);
	memset(target, 0, W);
	OK(cuMemcpyAtoH(target, a, 10, 100));
	CLAIM(memcmp(source + 10, target, 100) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH(target, a, W - 10, 11));
	up.Height = H + 1;
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&up));
	OK(cuArrayDestroy(a));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(a));
}

static void fills(CUdeviceptr d)
{
	uint16_t *half = (uint16_t *)target;
	uint32_t *word = (uint32_t *)target;
	OK(cuMemsetD8(d, 7, 1000));
	OK(cuMemsetD16(d + 100, 0x1234, 10));
	OK(cuMemsetD32Async(d + 200, 0x89abcdef, 10, NULL));
	OK(cuMemsetD2D8(d + 300, 100, 9, 3, 4));
	OK(cuMemcpyDtoH(target, d, 1000));
	CLAIM(target[99] == 7 && half[50] == 0x1234 && half[59] == 0x1234 && half[60] == 0x0707);
	CLAIM(word[50] == 0x89abcdef && word[59] == 0x89abcdef && word[60] == 0x07070707);
	for (int row = 0; row < 4; row++)
		CLAIM(target[300 + 100 * row] == 9 && target[302 + 100 * row] == 9 && target[303 + 100 * row] == 7);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(d + 1, 0, 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(d, 0, (size_t)1 << 40));
}

static void refusals(CUdeviceptr d)
{
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(d, source, (size_t)1 << 40));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(12345, source, 16));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(target, d + MOST + 4096 - 8, 16));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(NULL, d, 16));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(d + 8));
	OK(cuMemcpyHtoD(d, source, 0));
}

int main(void)
{
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUdeviceptr a, b;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&a, MOST + 4096));
	OK(cuMemAlloc(&b, MOST + 4096));
	lines(a, stream);
	within_device(a, b);
	pinned(a, stream);
	managed();
	box(a, 20, 10, 20, 64);
	box(a, 640, 480, 700, 1024);
	box(a, 1024, 1024, 1024, 1024);
	volume(a);
	array();
	fills(a);
	refusals(a);
	OK(cuMemFree(a));
	OK(cuMemFree(b));
	OK(cuStreamDestroy(stream));
	OK(cuCtxDestroy(context));
	puts("copies: fine");
	return 0;
}
