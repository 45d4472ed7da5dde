/* matmul multiplies two square matrices tile by tile, with barriers and shared
 * memory. */
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(matmul);

enum { Tile = 16 };

static float *a, *b;
static CUdeviceptr da, db, dc;
static CUfunction multiply;

/* The side, rounded up to whole tiles. */
static size_t side(struct bench *x)
{
	return (x->options.size + Tile - 1) / Tile * Tile;
}

static void prepare(struct bench *x)
{
	size_t n = side(x), bytes = n * n * sizeof(float);

	a = bench_allocate(n * n, sizeof *a);
	b = bench_allocate(n * n, sizeof *b);
	bench_fill(a, n * n, 1, -1, 1);
	bench_fill(b, n * n, 2, -1, 1);
	da = bench_upload(a, bytes);
	db = bench_upload(b, bytes);
	dc = bench_upload(NULL, bytes);
	multiply = bench_function(x, "matmul");
	x->work = 2.0 * (double)n * (double)n * (double)n;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)side(x), tiles = n / Tile;
	void *args[] = { &da, &db, &dc, &n };

	CHECK(cuLaunchKernel(multiply, tiles, tiles, 1, Tile, Tile, 1, 0, x->stream, args, NULL));
}

/* One element on the processor, in double precision. */
static double element(size_t n, size_t row, size_t column)
{
	double sum = 0;

	for (size_t k = 0; k < n; k++)
		sum += (double)a[row * n + k] * (double)b[k * n + column];
	return sum;
}

/* Checks every element of small matrices, and a few of each row of large ones. */
static bool check(struct bench *x)
{
	size_t n = side(x), step = n <= 256 ? 1 : n / 16;
	float *c = bench_download(dc, n * n * sizeof *c);
	bool right = true;

	for (size_t row = 0; row < n && right; row++)
		for (size_t column = row % step; column < n && right; column += step)
			right = bench_close("C", row * n + column, c[row * n + column],
				element(n, row, column), 1e-6 * (double)n);
	free(c);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(da));
	CHECK(cuMemFree(db));
	CHECK(cuMemFree(dc));
	free(a);
	free(b);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "matmul", .about = "multiplies two square matrices", .unit = "flop", .size_means = "rows",
		.ptx = ptx_matmul, .size = 256, .least = 1, .most = 32768,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
