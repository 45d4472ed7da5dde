/*
 * srad removes speckles from a picture: the picture goes to the device in each round, and the result comes back, so
 * that copies are a good part of the time.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

EMBED_PTX(srad);

enum { Steps = 2, Threads = 256 };

static const float Speckle = 0.5f, Rate = 0.5f;

static float *before, *after; /* pinned, so that copies are queued */
static CUdeviceptr from, to, coefficients;
static CUfunction weigh, step;

static void prepare(struct bench *x)
{
	size_t n = x->options.size * x->options.size, bytes = n * sizeof(float);
	void *p, *q;

	CHECK(cuMemAllocHost(&p, bytes));
	CHECK(cuMemAllocHost(&q, bytes));
	before = p;
	after = q;
	bench_fill(before, n, 1, 0.5f, 2);
	from = bench_upload(NULL, bytes);
	to = bench_upload(NULL, bytes);
	coefficients = bench_upload(NULL, bytes);
	weigh = bench_function(x, "sradCoefficients");
	step = bench_function(x, "sradStep");
	x->work = (double)n * Steps;
}

static void launch(struct bench *x)
{
	size_t n = x->options.size * x->options.size;
	unsigned side = (unsigned)x->options.size, blocks = bench_blocks(n, Threads, 1024);
	float speckle = Speckle, rate = Rate;
	CUdeviceptr in = from, out = to;

	CHECK(cuMemcpyHtoDAsync(in, before, n * sizeof(float), x->stream));
	for (int i = 0; i < Steps; i++) {
		void *weighing[] = { &in, &coefficients, &side, &side, &speckle };
		void *stepping[] = { &in, &coefficients, &out, &side, &side, &rate };

		bench_launch(x, weigh, blocks, Threads, weighing);
		bench_launch(x, step, blocks, Threads, stepping);
		CUdeviceptr swap = in;
		in = out;
		out = swap;
	}
	CHECK(cuMemcpyDtoHAsync(after, in, n * sizeof(float), x->stream));
}

/* Returns a pixel, or the nearest one at the border. */
static double pixel(const double *p, long side, long row, long column)
{
	row = row < 0 ? 0 : row < side ? row : side - 1;
	column = column < 0 ? 0 : column < side ? column : side - 1;
	return p[row * side + column];
}

static double coefficient(const double *p, long side, long row, long column)
{
	double here = pixel(p, side, row, column);
	double n = pixel(p, side, row - 1, column) - here, s = pixel(p, side, row + 1, column) - here;
	double w = pixel(p, side, row, column - 1) - here, e = pixel(p, side, row, column + 1) - here;
	double gradient = (n * n + s * s + w * w + e * e) / (here * here), laplacian = (n + s + w + e) / here;
	double root = 1 + 0.25 * laplacian, q = (0.5 * gradient - 0.0625 * laplacian * laplacian) / (root * root);
	double c = 1 / (1 + (q - Speckle) / (Speckle * (1 + Speckle)));

	return c < 0 ? 0 : c > 1 ? 1 : c;
}

static void diffuse(double *p, double *c, double *out, long side)
{
	for (long i = 0; i < side * side; i++)
		c[i] = coefficient(p, side, i / side, i % side);
	for (long i = 0; i < side * side; i++) {
		long row = i / side, column = i % side;
		out[i] = p[i] + 0.25 * Rate * (c[i] * (pixel(p, side, row - 1, column) - p[i]) +
			pixel(c, side, row + 1, column) * (pixel(p, side, row + 1, column) - p[i]) +
			c[i] * (pixel(p, side, row, column - 1) - p[i]) +
			pixel(c, side, row, column + 1) * (pixel(p, side, row, column + 1) - p[i]));
	}
	memcpy(p, out, (size_t)(side * side) * sizeof *p);
}

static bool check(struct bench *x)
{
	size_t n = x->options.size * x->options.size;
	double *p = bench_allocate(n, sizeof *p), *c = bench_allocate(n, sizeof *c), *out = bench_allocate(n, sizeof *out);
	bool right = true;

	for (size_t i = 0; i < n; i++)
		p[i] = before[i];
	for (int i = 0; i < Steps; i++)
		diffuse(p, c, out, (long)x->options.size);
	for (size_t i = 0; i < n && right; i++)
		right = bench_close("pixel", i, after[i], p[i], 1e-4);
	free(p);
	free(c);
	free(out);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(from));
	CHECK(cuMemFree(to));
	CHECK(cuMemFree(coefficients));
	CHECK(cuMemFreeHost(before));
	CHECK(cuMemFreeHost(after));
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "srad", .about = "takes speckles out of a picture", .unit = "pixels", .size_means = "pixels along a side",
		.ptx = ptx_srad, .size = 256, .least = 1, .most = 8192,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
