/*
 * lud factorises a matrix into L and U: three short kernels for each tile of the diagonal, each of which depends on the
 * results of the earlier ones.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

EMBED_PTX(lud);

enum { Tile = 16 };

static float *a;
static CUdeviceptr from, at;
static CUfunction diagonal, perimeter, internal;

/* The side, rounded up to whole tiles. */
static size_t side(struct bench *x)
{
	return (x->options.size + Tile - 1) / Tile * Tile;
}

/* A diagonally dominant matrix, which needs no pivoting. */
static void prepare(struct bench *x)
{
	size_t n = side(x), bytes = n * n * sizeof(float);

	a = bench_allocate(n * n, sizeof *a);
	bench_fill(a, n * n, 1, -1, 1);
	for (size_t i = 0; i < n; i++)
		a[i * n + i] += (float)n;
	from = bench_upload(a, bytes);
	at = bench_upload(NULL, bytes);
	diagonal = bench_function(x, "ludDiagonal");
	perimeter = bench_function(x, "ludPerimeter");
	internal = bench_function(x, "ludInternal");
	x->work = 2.0 / 3 * (double)n * (double)n * (double)n;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)side(x);

	CHECK(cuMemcpyDtoDAsync(at, from, (size_t)n * n * sizeof(float), x->stream));
	for (unsigned first = 0; first < n; first += Tile) {
		unsigned rest = (n - first) / Tile - 1;
		void *args[] = { &at, &n, &first };

		bench_launch(x, diagonal, 1, Tile, args);
		if (rest == 0)
			break;
		bench_launch(x, perimeter, rest, 2 * Tile, args);
		CHECK(cuLaunchKernel(internal, rest, rest, 1, Tile, Tile, 1, 0, x->stream, args, NULL));
	}
}

/* The same on the processor, in place and in double precision. */
static void factorise(double *m, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (size_t i = k + 1; i < n; i++) {
			double l = m[i * n + k] /= m[k * n + k];
			for (size_t j = k + 1; j < n; j++)
				m[i * n + j] -= l * m[k * n + j];
		}
}

static bool check(struct bench *x)
{
	size_t n = side(x);
	float *got = bench_download(at, n * n * sizeof *got);
	double *want = bench_allocate(n * n, sizeof *want);
	bool right = true;

	for (size_t i = 0; i < n * n; i++)
		want[i] = a[i];
	factorise(want, n);
	for (size_t i = 0; i < n * n && right; i++)
		right = bench_close("LU", i, got[i], want[i], 1e-6 * (double)n);
	free(want);
	free(got);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(from));
	CHECK(cuMemFree(at));
	free(a);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "lud", .about = "factorises a matrix into L and U", .unit = "flop", .size_means = "rows",
		.ptx = ptx_lud, .size = 128, .least = 1, .most = 8192,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
