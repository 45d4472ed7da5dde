/* rpes computes the repulsion of electrons between Gaussian shells: exponentials in
 * nested loops. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(rpes);

enum { Gaussians = 3, PerPair = Gaussians * Gaussians, Threads = 64 };

struct product {
	float exponent, weight, x, y, z;
};

static struct product *products; /* PerPair of each pair of shells */
static CUdeviceptr dproducts, dintegrals;
static CUfunction compute;

static size_t pairs(struct bench *x)
{
	return x->options.size * (x->options.size + 1) / 2;
}

/* The product of two Gaussians, exponents a and b, at two places. */
static struct product product(double a, const float *p, double b, const float *q)
{
	double far = 0, both = a + b, at[3];

	for (int d = 0; d < 3; d++) {
		at[d] = (a * p[d] + b * q[d]) / both;
		far += (p[d] - q[d]) * (p[d] - q[d]);
	}
	return (struct product){ (float)both, (float)(0.3 * exp(-a * b / both * far)), (float)at[0], (float)at[1], (float)at[2] };
}

static void prepare(struct bench *x)
{
	static const double exponents[Gaussians] = { 0.17, 0.62, 3.4 };
	size_t n = x->options.size;
	float *centres = bench_allocate(3 * n, sizeof *centres);
	struct product *to;

	bench_fill(centres, 3 * n, 1, -0.9f, 0.9f);
	to = products = bench_allocate(pairs(x) * PerPair, sizeof *products);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j <= i; j++)
			for (int k = 0; k < PerPair; k++)
				*to++ = product(exponents[k / Gaussians], centres + 3 * i, exponents[k % Gaussians], centres + 3 * j);
	free(centres);
	dproducts = bench_upload(products, pairs(x) * PerPair * sizeof *products);
	dintegrals = bench_upload(NULL, pairs(x) * pairs(x) * sizeof(float));
	compute = bench_function(x, "rpes");
	x->work = (double)pairs(x) * (double)pairs(x);
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)pairs(x);
	void *args[] = { &dproducts, &dintegrals, &n };

	bench_launch(x, compute, bench_blocks((size_t)n * n, Threads, 1024), Threads, args);
}

/* The integral of exp(-t u u) over u from 0 to 1, exactly. */
static double boys(double t)
{
	return t < 1e-8 ? 1 : 0.5 * sqrt(M_PI / t) * erf(sqrt(t));
}

static double integral(const struct product *bra, const struct product *ket)
{
	double sum = 0;

	for (const struct product *p = bra; p < bra + PerPair; p++)
		for (const struct product *q = ket; q < ket + PerPair; q++) {
			double dx = (double)p->x - q->x, dy = (double)p->y - q->y, dz = (double)p->z - q->z;
			double both = (double)p->exponent + q->exponent, product = (double)p->exponent * q->exponent;
			sum += p->weight * q->weight / (product * sqrt(both)) * boys(product / both * (dx * dx + dy * dy + dz * dz));
		}
	return 2 * pow(M_PI, 2.5) * sum;
}

static bool check(struct bench *x)
{
	size_t n = pairs(x);
	float *got = bench_download(dintegrals, n * n * sizeof *got);
	bool right = true;

	for (size_t i = 0; i < n * n && right; i += 1 + n * n / 2048) {
		double want = integral(products + i / n * PerPair, products + i % n * PerPair);
		right = bench_close("integral", i, got[i], want, 1e-4 * want + 1e-5);
	}
	free(got);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dproducts));
	CHECK(cuMemFree(dintegrals));
	free(products);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "rpes", .about = "computes the repulsion of electrons between shells", .unit = "integrals", .size_means = "shells",
		.ptx = ptx_rpes, .size = 12, .least = 1, .most = 200,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
