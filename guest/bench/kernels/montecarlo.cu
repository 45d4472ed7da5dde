/*
 * The price of call options as the mean over many random paths: one block for each option, whose threads compute its
 * paths in turn.
 */
#include "device.h"

enum { Threads = 128 };

/* A pseudo-random number that depends on seed. */
static __device__ inline unsigned chance(unsigned seed)
{
	seed ^= seed >> 16;
	seed *= 0x7feb352du;
	seed ^= seed >> 15;
	seed *= 0x846ca68bu;
	return seed ^ seed >> 16;
}

extern "C" __global__ void monteCarlo(float *call, const float *price, const float *strike, const float *years, float rate,
	float volatility, unsigned paths)
{
	__shared__ float sums[Threads];
	const unsigned option = blockIdx.x, me = threadIdx.x;
	const float S = price[option], X = strike[option], T = years[option];
	const float drift = (rate - 0.5f * volatility * volatility) * T, spread = volatility * squareRoot(T);
	float sum = 0;

	for (unsigned p = me; p < paths; p += Threads) {
		const unsigned seed = 2 * (option * paths + p);
		const float u = ((float)(chance(seed) >> 8) + 1) * 0x1p-24f, v = (float)(chance(seed + 1) >> 8) * 0x1p-24f;
		const float normal = squareRoot(-2 * fastLog(u)) * fastCos(6.28318531f * v);
		const float gain = S * fastExp(drift + spread * normal) - X;
		sum += gain > 0 ? gain : 0;
	}
	sums[me] = sum;
	for (unsigned half = Threads / 2; half > 0; half /= 2) {
		__syncthreads();
		if (me < half)
			sums[me] += sums[me + half];
	}
	if (me == 0)
		call[option] = sums[0] / (float)paths * fastExp(-rate * T);
}
