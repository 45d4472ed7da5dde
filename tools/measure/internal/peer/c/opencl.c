/* Runs OpenCL C on the processor: the source and the names of its kernels, in the
 * order of their numbers, are the arguments. Parameters are packed as PTX has
 * them; buffers are addresses within the shared memory. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#include "peer.h"

enum { MaxKernels = 8, MaxBuffers = 32 };

static cl_context context;
static cl_command_queue queue;
static cl_kernel kernels[MaxKernels];

/* The shared memory, and buffers on it, by their addresses. */
static unsigned char *memory, *memory_end;
static struct {
	uint64_t address;
	cl_mem mem;
} buffers[MaxBuffers];

static void check(cl_int result, const char *what)
{
	if (result != CL_SUCCESS) {
		fprintf(stderr, "%s: OpenCL error %d\n", what, result);
		exit(1);
	}
}

static char *read_file(const char *path)
{
	static char text[1 << 16];
	FILE *f = fopen(path, "r");

	if (!f || fread(text, 1, sizeof text - 1, f) == 0) {
		perror(path);
		exit(1);
	}
	fclose(f);
	return text;
}

void peer_start(void *at, size_t size, int argc, char **argv)
{
	const char *source = read_file(argv[0]);
	cl_platform_id platform;
	cl_device_id device;
	cl_int result;

	memory = at;
	memory_end = memory + size;
	check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL), "clGetDeviceIDs");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &result);
	check(result, "clCreateContext");
	queue = clCreateCommandQueue(context, device, 0, &result);
	check(result, "clCreateCommandQueue");
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &result);
	check(result, "clCreateProgramWithSource");
	check(clBuildProgram(program, 1, &device, "-cl-kernel-arg-info -cl-mad-enable", NULL, NULL), "clBuildProgram");
	for (int i = 1; i < argc && i <= MaxKernels; i++) {
		kernels[i - 1] = clCreateKernel(program, argv[i], &result);
		check(result, argv[i]);
	}
}

/* The buffer that begins at an address and goes on to the end of the memory. */
static cl_mem buffer(uint64_t address)
{
	unsigned char *at = (unsigned char *)address;

	for (int i = 0; i < MaxBuffers; i++) {
		if (buffers[i].address == address)
			return buffers[i].mem;
		if (buffers[i].address == 0) {
			cl_int result;
			buffers[i].address = address;
			buffers[i].mem = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, (size_t)(memory_end - at), at, &result);
			check(result, "clCreateBuffer");
			return buffers[i].mem;
		}
	}
	fprintf(stderr, "too many buffers\n");
	exit(1);
}

static void set_arguments(cl_kernel k, const struct launch *l)
{
	cl_uint count;

	check(clGetKernelInfo(k, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL), "clGetKernelInfo");
	const unsigned char *p = l->params;
	for (cl_uint i = 0; i < count; i++) {
		cl_kernel_arg_address_qualifier space;
		check(clGetKernelArgInfo(k, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, NULL), "clGetKernelArgInfo");
		if (space == CL_KERNEL_ARG_ADDRESS_PRIVATE) { /* a number of 32 bits */
			check(clSetKernelArg(k, i, 4, p), "clSetKernelArg");
			p += 4;
			continue;
		}
		cl_mem m = buffer(*(const uint64_t *)p);
		check(clSetKernelArg(k, i, sizeof m, &m), "clSetKernelArg");
		p += 8;
	}
}

void peer_launch(const struct launch *l)
{
	cl_kernel k = kernels[l->kernel];
	size_t local[3], global[3];

	for (int i = 0; i < 3; i++) {
		local[i] = l->block[i];
		global[i] = (size_t)l->grid[i] * l->block[i];
	}
	set_arguments(k, l);
	check(clEnqueueNDRangeKernel(queue, k, 3, NULL, global, local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
	check(clFinish(queue), "clFinish");
}
