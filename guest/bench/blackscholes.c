/* blackscholes prices options: much arithmetic for each element, with the
 * special functions. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(blackscholes);

static const float rate = 0.02f, volatility = 0.30f;
static float *price, *strike, *years;
static CUdeviceptr dprice, dstrike, dyears, dcall, dput;
static CUfunction black_scholes;

static void prepare(struct bench *x)
{
	size_t n = x->options.size, bytes = n * sizeof(float);

	price = bench_allocate(n, sizeof *price);
	strike = bench_allocate(n, sizeof *strike);
	years = bench_allocate(n, sizeof *years);
	bench_fill(price, n, 1, 5, 30);
	bench_fill(strike, n, 2, 1, 100);
	bench_fill(years, n, 3, 0.25f, 10);
	dprice = bench_upload(price, bytes);
	dstrike = bench_upload(strike, bytes);
	dyears = bench_upload(years, bytes);
	dcall = bench_upload(NULL, bytes);
	dput = bench_upload(NULL, bytes);
	black_scholes = bench_function(x, "blackScholes");
	x->work = (double)n;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)x->options.size;
	float r = rate, v = volatility;
	void *args[] = { &dcall, &dput, &dprice, &dstrike, &dyears, &r, &v, &n };

	bench_launch(x, black_scholes, bench_blocks(n, 256, 1024), 256, args);
}

static double normal(double d)
{
	return 0.5 * erfc(-d * M_SQRT1_2);
}

/* Prices one option by the exact formula. */
static void exact(size_t i, double *call, double *put)
{
	double S = price[i], X = strike[i], T = years[i], r = rate, v = volatility;
	double d1 = (log(S / X) + (r + 0.5 * v * v) * T) / (v * sqrt(T)), d2 = d1 - v * sqrt(T);
	double discounted = X * exp(-r * T);

	*call = S * normal(d1) - discounted * normal(d2);
	*put = discounted * normal(-d2) - S * normal(-d1);
}

static bool check(struct bench *x)
{
	size_t n = x->options.size, bytes = n * sizeof(float);
	float *call = bench_download(dcall, bytes), *put = bench_download(dput, bytes);
	bool right = true;

	for (size_t i = 0; i < n && right; i++) {
		double c, p;
		exact(i, &c, &p);
		right = bench_close("call", i, call[i], c, 1e-4) && bench_close("put", i, put[i], p, 1e-4);
	}
	free(call);
	free(put);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dprice));
	CHECK(cuMemFree(dstrike));
	CHECK(cuMemFree(dyears));
	CHECK(cuMemFree(dcall));
	CHECK(cuMemFree(dput));
	free(price);
	free(strike);
	free(years);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "blackscholes", .about = "prices European options", .unit = "options", .size_means = "options",
		.ptx = ptx_blackscholes, .size = 1 << 18, .least = 1, .most = 1 << 30,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
