/*
 * Sums: each block stores the sum of its share of the elements in sums. A second run with one block over the sums gives
 * the total.
 */
#include "device.h"

enum { Threads = 256 };

extern "C" __global__ void sum(const float *in, float *sums, unsigned n)
{
	__shared__ float s[Threads];
	float mine = 0;

	for (unsigned i = firstElement(); i < n; i += elementStride())
		mine += in[i];
	s[threadIdx.x] = mine;
	for (unsigned half = Threads / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			s[threadIdx.x] += s[threadIdx.x + half];
	}
	if (threadIdx.x == 0)
		sums[blockIdx.x] = s[0];
}
