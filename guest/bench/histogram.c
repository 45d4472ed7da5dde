/* histogram counts byte values: atomic additions in shared and in global memory,
 * and a memset before each kernel. */
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(histogram);

enum { Bins = 256 };

static uint32_t *words;
static CUdeviceptr dwords, dbins;
static CUfunction histogram;

static void prepare(struct bench *x)
{
	size_t n = x->options.size;
	uint32_t seed = 1;

	words = bench_allocate(n, sizeof *words);
	for (size_t i = 0; i < n; i++)
		words[i] = bench_random(&seed) << 16 ^ bench_random(&seed);
	dwords = bench_upload(words, n * sizeof *words);
	dbins = bench_upload(NULL, Bins * sizeof(uint32_t));
	histogram = bench_function(x, "histogram");
	x->work = 4.0 * (double)n;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)x->options.size;
	void *args[] = { &dwords, &dbins, &n };

	CHECK(cuMemsetD32Async(dbins, 0, Bins, x->stream));
	bench_launch(x, histogram, bench_blocks(n, 256, 256), 256, args);
}

static bool check(struct bench *x)
{
	uint32_t *bins = bench_download(dbins, Bins * sizeof *bins), want[Bins] = { 0 };
	bool right = true;

	for (size_t i = 0; i < x->options.size; i++)
		for (unsigned shift = 0; shift < 32; shift += 8)
			want[words[i] >> shift & 255]++;
	for (size_t i = 0; i < Bins && right; i++)
		right = bench_close("bins", i, bins[i], want[i], 0);
	free(bins);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dwords));
	CHECK(cuMemFree(dbins));
	free(words);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "histogram", .about = "counts byte values", .unit = "bytes", .size_means = "words of four bytes",
		.ptx = ptx_histogram, .size = 1 << 18, .least = 1, .most = 1 << 30,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
