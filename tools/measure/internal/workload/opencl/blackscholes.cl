static float normal(float d)
{
	const float x = fabs(d);
	const float k = 1 / (1 + 0.2316419f * x);
	const float tail = 0.39894228f * native_exp2(-0.5f * x * x * 1.44269504f) * k *
		(0.31938153f + k * (-0.356563782f + k * (1.781477937f +
		k * (-1.821255978f + k * 1.330274429f))));
	return d > 0 ? 1 - tail : tail;
}

kernel void blackScholes(global float *call, global float *put, global const float *price,
	global const float *strike, global const float *years, float rate, float volatility, uint n)
{
	for (uint i = get_global_id(0); i < n; i += get_global_size(0)) {
		const float S = price[i], X = strike[i], T = years[i];
		const float spread = volatility * sqrt(T);
		const float d1 = (native_log2(S / X) * 0.69314718f + (rate + 0.5f * volatility * volatility) * T) / spread;
		const float d2 = d1 - spread;
		const float n1 = normal(d1), n2 = normal(d2);
		const float discounted = X * native_exp2(-rate * T * 1.44269504f);
		call[i] = S * n1 - discounted * n2;
		put[i] = discounted * (1 - n2) - S * (1 - n1);
	}
}
