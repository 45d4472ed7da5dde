/* vectoradd adds two vectors: as much memory traffic and as little arithmetic as
 * a kernel can have. */
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(vectoradd);

static float *a, *b;
static CUdeviceptr da, db, dc;
static CUfunction add;

static void prepare(struct bench *x)
{
	size_t n = x->options.size;

	a = bench_allocate(n, sizeof *a);
	b = bench_allocate(n, sizeof *b);
	bench_fill(a, n, 1, -1, 1);
	bench_fill(b, n, 2, -1, 1);
	da = bench_upload(a, n * sizeof *a);
	db = bench_upload(b, n * sizeof *b);
	dc = bench_upload(NULL, n * sizeof(float));
	add = bench_function(x, "vectorAdd");
	x->work = (double)n;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)x->options.size;
	void *args[] = { &da, &db, &dc, &n };

	bench_launch(x, add, bench_blocks(n, 256, 1024), 256, args);
}

static bool check(struct bench *x)
{
	size_t n = x->options.size;
	float *c = bench_download(dc, n * sizeof *c);
	bool right = true;

	for (size_t i = 0; i < n && right; i++)
		right = bench_close("c", i, c[i], a[i] + b[i], 0);
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
		.name = "vectoradd", .about = "adds two vectors", .unit = "elements", .size_means = "elements",
		.ptx = ptx_vectoradd, .size = 1 << 20, .least = 1, .most = 1 << 30,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
