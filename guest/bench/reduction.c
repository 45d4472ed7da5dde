/* reduction adds up a vector: a tree in shared memory, and two dependent kernels
 * in each round. */
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(reduction);

enum { Threads = 256, Blocks = 256 };

static float *in;
static CUdeviceptr din, dsums, dtotal;
static CUfunction sum;

static void prepare(struct bench *x)
{
	size_t n = x->options.size;

	in = bench_allocate(n, sizeof *in);
	bench_fill(in, n, 1, 0, 1);
	din = bench_upload(in, n * sizeof *in);
	dsums = bench_upload(NULL, Blocks * sizeof(float));
	dtotal = bench_upload(NULL, sizeof(float));
	sum = bench_function(x, "sum");
	x->work = (double)n;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)x->options.size, blocks = bench_blocks(n, Threads, Blocks);
	void *parts[] = { &din, &dsums, &n }, *whole[] = { &dsums, &dtotal, &blocks };

	bench_launch(x, sum, blocks, Threads, parts);
	bench_launch(x, sum, 1, Threads, whole);
}

static bool check(struct bench *x)
{
	float *total = bench_download(dtotal, sizeof *total);
	double want = 0;

	for (size_t i = 0; i < x->options.size; i++)
		want += in[i];
	bool right = bench_close("total", 0, *total, want, 1e-5 * want);
	free(total);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(din));
	CHECK(cuMemFree(dsums));
	CHECK(cuMemFree(dtotal));
	free(in);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "reduction", .about = "adds up a vector", .unit = "elements", .size_means = "elements",
		.ptx = ptx_reduction, .size = 1 << 20, .least = 1, .most = 1 << 30,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
