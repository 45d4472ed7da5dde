/* montecarlo prices call options by random paths. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(montecarlo);

enum { Paths = 4096, Threads = 128 };

static const float Rate = 0.02f, Volatility = 0.3f;

static float *price, *strike, *years;
static CUdeviceptr dcall, dprice, dstrike, dyears;
static CUfunction simulate;

static void prepare(struct bench *x)
{
	size_t n = x->options.size, bytes = n * sizeof(float);

	price = bench_allocate(n, sizeof *price);
	strike = bench_allocate(n, sizeof *strike);
	years = bench_allocate(n, sizeof *years);
	bench_fill(price, n, 1, 5, 30);
	bench_fill(strike, n, 2, 5, 30);
	bench_fill(years, n, 3, 0.25f, 3);
	dprice = bench_upload(price, bytes);
	dstrike = bench_upload(strike, bytes);
	dyears = bench_upload(years, bytes);
	dcall = bench_upload(NULL, bytes);
	simulate = bench_function(x, "monteCarlo");
	x->work = (double)n * Paths;
}

static void launch(struct bench *x)
{
	float rate = Rate, volatility = Volatility;
	unsigned paths = Paths;
	void *args[] = { &dcall, &dprice, &dstrike, &dyears, &rate, &volatility, &paths };

	bench_launch(x, simulate, (unsigned)x->options.size, Threads, args);
}

static uint32_t chance(uint32_t seed)
{
	seed ^= seed >> 16;
	seed *= 0x7feb352du;
	seed ^= seed >> 15;
	seed *= 0x846ca68bu;
	return seed ^ seed >> 16;
}

/* The price by the same paths, in double precision. */
static double value(size_t option)
{
	double S = price[option], X = strike[option], T = years[option], sum = 0;
	double drift = (Rate - 0.5 * Volatility * Volatility) * T, spread = Volatility * sqrt(T);

	for (uint32_t p = 0; p < Paths; p++) {
		uint32_t seed = 2 * ((uint32_t)option * Paths + p);
		double u = ((chance(seed) >> 8) + 1) * 0x1p-24, v = (chance(seed + 1) >> 8) * 0x1p-24;
		double gain = S * exp(drift + spread * sqrt(-2 * log(u)) * cos(2 * M_PI * v)) - X;
		sum += gain > 0 ? gain : 0;
	}
	return sum / Paths * exp(-Rate * T);
}

static bool check(struct bench *x)
{
	size_t n = x->options.size;
	float *got = bench_download(dcall, n * sizeof *got);
	bool right = true;

	for (size_t i = 0; i < n && right; i += 1 + n / 256)
		right = bench_close("price", i, got[i], value(i), 2e-3);
	free(got);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dcall));
	CHECK(cuMemFree(dprice));
	CHECK(cuMemFree(dstrike));
	CHECK(cuMemFree(dyears));
	free(price);
	free(strike);
	free(years);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "montecarlo", .about = "prices call options by random paths", .unit = "paths", .size_means = "options",
		.ptx = ptx_montecarlo, .size = 64, .least = 1, .most = 65535,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
