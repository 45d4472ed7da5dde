/* image smooths the three planes of a picture by products of matrices and compresses
 * it to DXT1: short kernels of two modules. */
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(matmul);
EMBED_PTX(dxtc);

enum { Tile = 16, Planes = 3, Threads = 64 };

static float *planes[Planes], *smoothing;
static CUdeviceptr dplanes[Planes], dsmooth[Planes], dsmoothing, dblocks;
static CUmodule compression;
static CUfunction multiply, compress;

/* The side, rounded up to whole tiles. */
static size_t side(struct bench *x)
{
	return (x->options.size + Tile - 1) / Tile * Tile;
}

/* Each row becomes the mean of itself and its neighbours. */
static void prepare(struct bench *x)
{
	size_t n = side(x), bytes = n * n * sizeof(float);

	smoothing = bench_allocate(n * n, sizeof *smoothing);
	for (size_t i = 0; i < n; i++) {
		smoothing[i * n + i] += 0.5f;
		smoothing[i * n + (i > 0 ? i - 1 : i)] += 0.25f;
		smoothing[i * n + (i + 1 < n ? i + 1 : i)] += 0.25f;
	}
	dsmoothing = bench_upload(smoothing, bytes);
	for (int p = 0; p < Planes; p++) {
		planes[p] = bench_allocate(n * n, sizeof(float));
		bench_fill(planes[p], n * n, (uint32_t)p + 1, 0, 255);
		dplanes[p] = bench_upload(planes[p], bytes);
		dsmooth[p] = bench_upload(NULL, bytes);
	}
	dblocks = bench_upload(NULL, n * n / 16 * 2 * sizeof(uint32_t));
	multiply = bench_function(x, "matmul");
	CHECK(cuModuleLoadData(&compression, ptx_dxtc));
	CHECK(cuModuleGetFunction(&compress, compression, "dxt1"));
	x->work = (double)(n * n);
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)side(x), tiles = n / Tile;

	for (int p = 0; p < Planes; p++) {
		void *args[] = { &dsmoothing, &dplanes[p], &dsmooth[p], &n };

		CHECK(cuLaunchKernel(multiply, tiles, tiles, 1, Tile, Tile, 1, 0, x->stream, args, NULL));
	}
	void *args[] = { &dsmooth[0], &dsmooth[1], &dsmooth[2], &dblocks, &n };
	bench_launch(x, compress, bench_blocks((size_t)n * n / 16, Threads, 1024), Threads, args);
}

static bool smoothed(size_t n, const float *got, const float *plane)
{
	bool right = true;

	for (size_t i = 0; i < n * n && right; i++) {
		size_t row = i / n, column = i % n;
		double want = 0.5 * plane[i] + 0.25 * plane[(row > 0 ? row - 1 : row) * n + column] +
			0.25 * plane[(row + 1 < n ? row + 1 : row) * n + column];
		right = bench_close("smooth", i, got[i], want, 1e-3);
	}
	return right;
}

static int whole(float v)
{
	return v < 0 ? 0 : v > 255 ? 255 : (int)v;
}

static void unpack(uint32_t packed, int *c)
{
	int red = (int)(packed >> 11), green = (int)(packed >> 5 & 63), blue = (int)(packed & 31);

	c[0] = red << 3 | red >> 2;
	c[1] = green << 2 | green >> 4;
	c[2] = blue << 3 | blue >> 2;
}

/*
 * The same 4 x 4 pixels on the processor: the block's colours are the extreme ones, and no other index would be nearer.
 */
static bool compressed(size_t n, size_t b, float *const *smooth, const uint32_t *block)
{
	int c[16][3], low[3] = { 255, 255, 255 }, high[3] = { 0, 0, 0 };

	for (size_t i = 0; i < 16; i++)
		for (int k = 0; k < 3; k++) {
			c[i][k] = whole(smooth[k][(b / (n / 4) * 4 + i / 4) * n + b % (n / 4) * 4 + i % 4]);
			low[k] = c[i][k] < low[k] ? c[i][k] : low[k];
			high[k] = c[i][k] > high[k] ? c[i][k] : high[k];
		}
	uint32_t first = (uint32_t)(high[0] >> 3 << 11 | high[1] >> 2 << 5 | high[2] >> 3);
	uint32_t second = (uint32_t)(low[0] >> 3 << 11 | low[1] >> 2 << 5 | low[2] >> 3), indices = 0;
	unpack(first, high);
	unpack(second, low);
	for (size_t i = 0; i < 16; i++) {
		static const int parts[] = { 3, 0, 2, 1 };
		int best = 1 << 30;
		uint32_t which = 0;
		for (uint32_t p = 0; p < 4; p++) {
			int far = 0;
			for (int k = 0; k < 3; k++) {
				int d = c[i][k] - (parts[p] * high[k] + (3 - parts[p]) * low[k]) / 3;
				far += d * d;
			}
			if (far < best) {
				best = far;
				which = p;
			}
		}
		indices |= which << 2 * i;
	}
	return bench_close("colours", b, block[0], first | second << 16, 0) && bench_close("indices", b, block[1], indices, 0);
}

static bool check(struct bench *x)
{
	size_t n = side(x), bytes = n * n * sizeof(float);
	float *smooth[Planes];
	uint32_t *blocks = bench_download(dblocks, n * n / 16 * 2 * sizeof *blocks);
	bool right = true;

	for (int p = 0; p < Planes; p++) {
		smooth[p] = bench_download(dsmooth[p], bytes);
		right = right && smoothed(n, smooth[p], planes[p]);
	}
	for (size_t b = 0; b < n * n / 16 && right; b++)
		right = compressed(n, b, smooth, blocks + 2 * b);
	for (int p = 0; p < Planes; p++)
		free(smooth[p]);
	free(blocks);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	for (int p = 0; p < Planes; p++) {
		CHECK(cuMemFree(dplanes[p]));
		CHECK(cuMemFree(dsmooth[p]));
		free(planes[p]);
	}
	CHECK(cuMemFree(dsmoothing));
	CHECK(cuMemFree(dblocks));
	CHECK(cuModuleUnload(compression));
	free(smoothing);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "image", .about = "smooths a picture and compresses it to DXT1", .unit = "pixels", .size_means = "pixels along a side",
		.ptx = ptx_matmul, .size = 128, .least = 1, .most = 8192,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
