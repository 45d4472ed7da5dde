/* The price of call options by a binomial tree: one block for each option, one
 * thread for each leaf, which go back step by step to the root. */
#include "device.h"

enum { Steps = 255, Leaves = Steps + 1 };

extern "C" __global__ void binomial(float *call, const float *price, const float *strike, const float *years, float rate, float volatility)
{
	__shared__ float value[2][Leaves + 1];
	const unsigned option = blockIdx.x, me = threadIdx.x;
	const float step = years[option] / Steps, move = volatility * squareRoot(step);
	const float up = fastExp(move), down = fastExp(-move);
	const float likely = (fastExp(rate * step) - down) / (up - down), discount = fastExp(-rate * step);
	const float gain = price[option] * fastExp(move * (2 * (float)me - Steps)) - strike[option];

	value[0][me] = gain > 0 ? gain : 0;
	for (unsigned s = 0; s < Steps; s++) {
		__syncthreads();
		const unsigned from = s % 2;
		value[1 - from][me] = me < Leaves - 1 - s ? discount * (likely * value[from][me + 1] + (1 - likely) * value[from][me]) : 0;
	}
	if (me == 0)
		call[option] = value[Steps % 2][0];
}
