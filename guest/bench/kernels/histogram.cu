/* How often each of the 256 values occurs among bytes. Each block counts in
 * shared memory and adds its counts to the total; bins must be zero before. */
#include "device.h"

enum { Bins = 256 };

extern "C" __global__ void histogram(const unsigned *words, unsigned *bins, unsigned n)
{
	__shared__ unsigned counts[Bins];

	for (unsigned i = threadIdx.x; i < Bins; i += blockDim.x)
		counts[i] = 0;
	__syncthreads();
	for (unsigned i = firstElement(); i < n; i += elementStride()) {
		const unsigned word = words[i];
		atomicAdd(&counts[word & 255], 1);
		atomicAdd(&counts[word >> 8 & 255], 1);
		atomicAdd(&counts[word >> 16 & 255], 1);
		atomicAdd(&counts[word >> 24], 1);
	}
	__syncthreads();
	for (unsigned i = threadIdx.x; i < Bins; i += blockDim.x)
		atomicAdd(&bins[i], counts[i]);
}
