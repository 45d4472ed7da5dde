/* binomial prices call options by binomial trees, a few options per call, so that there are many calls. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(binomial);

enum { Steps = 255, Leaves = Steps + 1, PerCall = 8 };

static const float Rate = 0.02f, Volatility = 0.3f;

static float *price, *strike, *years;
static CUdeviceptr dcall, dprice, dstrike, dyears;
static CUfunction tree;

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
	tree = bench_function(x, "binomial");
	x->work = (double)n;
}

static void launch(struct bench *x)
{
	float rate = Rate, volatility = Volatility;

	for (size_t i = 0; i < x->options.size; i += PerCall) {
		size_t rest = x->options.size - i, at = i * sizeof(float);
		CUdeviceptr c = dcall + at, p = dprice + at, s = dstrike + at, y = dyears + at;
		void *args[] = { &c, &p, &s, &y, &rate, &volatility };

		bench_launch(x, tree, rest < PerCall ? (unsigned)rest : PerCall, Leaves, args);
	}
}

/* The same tree in double precision. */
static double value(size_t option)
{
	double v[Leaves], step = years[option] / Steps, move = Volatility * sqrt(step), up = exp(move), down = exp(-move);
	double likely = (exp(Rate * step) - down) / (up - down), discount = exp(-Rate * step);

	for (int i = 0; i < Leaves; i++)
		v[i] = fmax(price[option] * exp(move * (2 * i - Steps)) - strike[option], 0);
	for (int s = 0; s < Steps; s++)
		for (int i = 0; i < Leaves - 1 - s; i++)
			v[i] = discount * (likely * v[i + 1] + (1 - likely) * v[i]);
	return v[0];
}

static bool check(struct bench *x)
{
	size_t n = x->options.size;
	float *got = bench_download(dcall, n * sizeof *got);
	bool right = true;

	for (size_t i = 0; i < n && right; i++)
		right = bench_close("price", i, got[i], value(i), 5e-3);
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
		.name = "binomial", .about = "prices call options by binomial trees", .unit = "options", .size_means = "options",
		.ptx = ptx_binomial, .size = 64, .least = 1, .most = 1 << 20,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
