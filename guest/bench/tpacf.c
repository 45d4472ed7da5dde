/*
 * tpacf computes the histogram of the distances between all points on a sphere: one very long kernel with diverging
 * threads.
 */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(tpacf);

enum { Bins = 20, Threads = 64 };

struct point {
	float x, y, z, unused;
};

static struct point *points;
static float edges[Bins];
static CUdeviceptr dpoints, dedges, dbins;
static CUfunction correlate;

static void prepare(struct bench *x)
{
	size_t n = x->options.size;
	uint32_t seed = 1;

	points = bench_allocate(n, sizeof *points);
	for (size_t i = 0; i < n; i++) {
		double height = 2 * (bench_random(&seed) / 0x1p24) - 1, turn = 2 * M_PI * (bench_random(&seed) / 0x1p24);
		double across = sqrt(1 - height * height);
		points[i] = (struct point){ (float)(across * cos(turn)), (float)(across * sin(turn)), (float)height, 0 };
	}
	for (int b = 0; b < Bins; b++)
		edges[b] = (float)cos(M_PI * (b + 1) / Bins);
	edges[Bins - 1] = -2;
	dpoints = bench_upload(points, n * sizeof *points);
	dedges = bench_upload(edges, sizeof edges);
	dbins = bench_upload(NULL, Bins * sizeof(uint32_t));
	correlate = bench_function(x, "tpacf");
	x->work = (double)n * (double)(n - 1) / 2;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)x->options.size;
	void *args[] = { &dpoints, &n, &dedges, &dbins };

	CHECK(cuMemsetD32Async(dbins, 0, Bins, x->stream));
	bench_launch(x, correlate, bench_blocks(n, Threads, 1024), Threads, args);
}

/* Rounding may put a pair at a bin's edge on either side of it. */
static bool check(struct bench *x)
{
	uint32_t *got = bench_download(dbins, Bins * sizeof *got);
	double want[Bins] = { 0 }, doubtful[Bins] = { 0 };
	bool right = true;

	for (const struct point *p = points; p < points + x->options.size; p++)
		for (const struct point *q = p + 1; q < points + x->options.size; q++) {
			double cosine = (double)p->x * q->x + (double)p->y * q->y + (double)p->z * q->z;
			int b = 0;
			while (cosine < edges[b])
				b++;
			want[b]++;
			if (b > 0 && edges[b - 1] - cosine < 1e-6)
				doubtful[b]++, doubtful[b - 1]++;
			if (b < Bins - 1 && cosine - edges[b] < 1e-6)
				doubtful[b]++, doubtful[b + 1]++;
		}
	for (size_t b = 0; b < Bins && right; b++)
		right = bench_close("bin", b, got[b], want[b], doubtful[b]);
	free(got);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dpoints));
	CHECK(cuMemFree(dedges));
	CHECK(cuMemFree(dbins));
	free(points);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "tpacf", .about = "counts how far points on a sphere are apart", .unit = "pairs", .size_means = "points",
		.ptx = ptx_tpacf, .size = 1024, .least = 1, .most = 1 << 18,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
