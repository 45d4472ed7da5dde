/* Runs cases of PTX that it reads from stdin, one after the other, on whatever device there is.
 *
 *	out: NAME\nMAJOR MINOR VERSION\n         the device, its capability, the driver's version
 *	in:  THREADS TEXT VALUES BUFFERS         bytes of the module and of the values, number of buffers
 *	     BYTES BYTES …\n                     of each buffer
 *	     the module, the values, the buffers, without anything between them
 *	out: RESULT HEX HEX …\n                  for each case: the CUresult, then the buffers
 *
 * The kernel k gets the addresses of the buffers and then the values as its parameters, in one block of so many threads. */
#include "check.h"

#include <string.h>

enum { MAX_BUFFERS = 8 };

static void *take(size_t bytes)
{
	char *p = calloc(1, bytes + 1);
	if (!p || fread(p, 1, bytes, stdin) != bytes) {
		fprintf(stderr, "the input ends within a case\n");
		exit(1);
	}
	return p;
}

struct buffer {
	size_t bytes;
	unsigned char *memory;
	CUdeviceptr device;
};

/* run returns the first error. */
static CUresult run(const char *text, void *params, size_t bytes, unsigned threads)
{
	CUmodule module;
	CUfunction k;
	CUresult r = cuModuleLoadData(&module, text);
	if (r != CUDA_SUCCESS)
		return r;
	r = cuModuleGetFunction(&k, module, "k");
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	if (r == CUDA_SUCCESS)
		r = cuLaunchKernel(k, 1, 1, 1, threads, 1, 1, 0, NULL, NULL, extra);
	if (r == CUDA_SUCCESS)
		r = cuCtxSynchronize();
	cuModuleUnload(module);
	return r;
}

static CUresult one(unsigned threads, const char *text, const void *values, size_t bytes, struct buffer *buffers, int count)
{
	char params[4096];
	for (int i = 0; i < count; i++) {
		CHECK(cuMemAlloc(&buffers[i].device, buffers[i].bytes));
		CHECK(cuMemcpyHtoD(buffers[i].device, buffers[i].memory, buffers[i].bytes));
		memcpy(params + 8 * i, &buffers[i].device, 8);
	}
	memcpy(params + 8 * count, values, bytes);
	CUresult r = run(text, params, 8 * count + bytes, threads);
	for (int i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = cuMemcpyDtoH(buffers[i].memory, buffers[i].device, buffers[i].bytes);
	for (int i = 0; i < count; i++)
		cuMemFree(buffers[i].device);
	return r;
}

static void show(CUresult r, const struct buffer *buffers, int count)
{
	printf("%d", r);
	for (int i = 0; i < count; i++) {
		putchar(' ');
		for (size_t k = 0; k < buffers[i].bytes; k++)
			printf("%02x", buffers[i].memory[k]);
	}
	putchar('\n');
	fflush(stdout);
}

int main(void)
{
	CUdevice device;
	CUcontext context;
	char name[100];
	int major, minor, version, count;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetName(name, sizeof name, device));
	CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
	CHECK(cuDriverGetVersion(&version));
	printf("%s\n%d %d %d\n", name, major, minor, version);
	fflush(stdout);
	CHECK(cuCtxCreate(&context, 0, device));
	unsigned threads;
	size_t text_bytes, value_bytes;
	while (scanf("%u %zu %zu %d", &threads, &text_bytes, &value_bytes, &count) == 4) {
		struct buffer buffers[MAX_BUFFERS] = { 0 };
		if (count < 0 || count > MAX_BUFFERS || value_bytes > 2048)
			return 1;
		for (int i = 0; i < count; i++)
			if (scanf("%zu", &buffers[i].bytes) != 1)
				return 1;
		getchar();
		char *text = take(text_bytes), *values = take(value_bytes);
		for (int i = 0; i < count; i++)
			buffers[i].memory = take(buffers[i].bytes);
		CUresult r = one(threads, text, values, value_bytes, buffers, count);
		show(r, buffers, count);
		if (cuCtxSynchronize() != CUDA_SUCCESS) /* the case broke the context, and on NVIDIA's GPUs its whole process */
			return 0;
		for (int i = 0; i < count; i++)
			free(buffers[i].memory);
		free(values);
		free(text);
	}
	CHECK(cuCtxDestroy(context));
	return 0;
}
