// A program of the CUDA runtime, as nvcc links it by default: with a runtime of its own inside.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                                            \
	do {                                                                                   \
		cudaError_t e = (call);                                                        \
		if (e != cudaSuccess) {                                                        \
			std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e));        \
			std::exit(1);                                                          \
		}                                                                              \
	} while (0)

__constant__ float weights[16];
__device__ unsigned total;

__global__ void filter(const float *in, float *out, int n)
{
	extern __shared__ float near_by[];
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	near_by[threadIdx.x] = i < n ? in[i] : 0;
	__syncthreads();
	if (i >= n)
		return;
	float sum = 0;
	for (int k = 0; k < 16; k++)
		sum += weights[k] * near_by[(threadIdx.x + k) % blockDim.x];
	out[i] = sum;
}

__global__ void count(const float *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	unsigned more = __ballot_sync(~0u, i < n && in[i] > 0);
	if (threadIdx.x % 32 == 0)
		atomicAdd(&total, __popc(more));
}

int main()
{
	const int n = 1 << 16;
	int devices;
	CHECK(cudaGetDeviceCount(&devices));
	std::printf("{\"answer\": \"there are devices\", \"value\": %d}\n", devices > 0);
	std::vector<float> in(n);
	float w[16];
	for (int i = 0; i < n; i++)
		in[i] = (float)((i * 7919LL) % 1009 - 504) / 504;
	for (int k = 0; k < 16; k++)
		w[k] = 1.0f / (float)(k + 1);
	float *a, *b, *pinned;
	cudaStream_t s;
	cudaEvent_t begin, end;
	CHECK(cudaMalloc(&a, n * sizeof *a));
	CHECK(cudaMalloc(&b, n * sizeof *b));
	CHECK(cudaMallocHost(&pinned, n * sizeof *pinned));
	CHECK(cudaStreamCreate(&s));
	CHECK(cudaEventCreate(&begin));
	CHECK(cudaEventCreate(&end));
	CHECK(cudaMemcpyToSymbol(weights, w, sizeof w));
	CHECK(cudaMemcpyAsync(a, in.data(), n * sizeof *a, cudaMemcpyHostToDevice, s));
	CHECK(cudaEventRecord(begin, s));
	filter<<<n / 256, 256, 256 * sizeof(float), s>>>(a, b, n);
	CHECK(cudaGetLastError());
	count<<<n / 256, 256, 0, s>>>(b, n);
	CHECK(cudaGetLastError());
	CHECK(cudaEventRecord(end, s));
	CHECK(cudaMemcpyAsync(pinned, b, n * sizeof *b, cudaMemcpyDeviceToHost, s));
	CHECK(cudaStreamSynchronize(s));
	unsigned positive;
	float ms;
	CHECK(cudaMemcpyFromSymbol(&positive, total, sizeof positive));
	CHECK(cudaEventElapsedTime(&ms, begin, end));
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += pinned[i];
	std::printf("{\"answer\": \"sum\", \"value\": %.9g}\n{\"answer\": \"positive\", \"value\": %u}\n", sum, positive);
	std::printf("{\"answer\": \"it took some time\", \"value\": %d}\n", ms > 0);
	return 0;
}
