/* Prices of European call and put options after Black and Scholes. */
#include "device.h"

/* The cumulative normal distribution: Abramowitz and Stegun, 26.2.17. */
static __device__ inline float normal(float d)
{
	const float x = d < 0 ? -d : d;
	const float k = 1 / (1 + 0.2316419f * x);
	const float tail = 0.39894228f * fastExp(-0.5f * x * x) * k *
		(0.31938153f + k * (-0.356563782f + k * (1.781477937f +
		k * (-1.821255978f + k * 1.330274429f))));
	return d > 0 ? 1 - tail : tail;
}

extern "C" __global__ void blackScholes(float *call, float *put, const float *price,
	const float *strike, const float *years, float rate, float volatility, unsigned n)
{
	for (unsigned i = firstElement(); i < n; i += elementStride()) {
		const float S = price[i], X = strike[i], T = years[i];
		const float spread = volatility * squareRoot(T);
		const float d1 = (fastLog(S / X) + (rate + 0.5f * volatility * volatility) * T) / spread;
		const float d2 = d1 - spread;
		const float n1 = normal(d1), n2 = normal(d2);
		const float discounted = X * fastExp(-rate * T);
		call[i] = S * n1 - discounted * n2;
		put[i] = discounted * (1 - n2) - S * (1 - n1);
	}
}
