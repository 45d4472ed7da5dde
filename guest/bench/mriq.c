/* mriq computes the matrix Q of a magnetic resonance picture: few long kernels, all
 * sines and cosines. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(mriq);

enum { Samples = 512, Threads = 256 };

struct sample {
	float x, y, z, strength;
};

static struct sample samples[Samples];
static float *at[3];
static CUdeviceptr dsamples, dat[3], dreal, dimaginary;
static CUfunction compute;

static void prepare(struct bench *x)
{
	size_t n = x->options.size;

	for (int d = 0; d < 3; d++) {
		at[d] = bench_allocate(n, sizeof(float));
		bench_fill(at[d], n, (uint32_t)d + 1, -1, 1);
		dat[d] = bench_upload(at[d], n * sizeof(float));
	}
	bench_fill(&samples[0].x, Samples * sizeof samples[0] / sizeof(float), 4, -8, 8);
	dsamples = bench_upload(samples, sizeof samples);
	dreal = bench_upload(NULL, n * sizeof(float));
	dimaginary = bench_upload(NULL, n * sizeof(float));
	compute = bench_function(x, "mriQ");
	x->work = (double)n * Samples;
}

static void launch(struct bench *x)
{
	unsigned n = (unsigned)x->options.size, count = Samples;
	void *args[] = { &dsamples, &count, &dat[0], &dat[1], &dat[2], &dreal, &dimaginary, &n };

	bench_launch(x, compute, bench_blocks(n, Threads, 1024), Threads, args);
}

static bool check(struct bench *x)
{
	size_t n = x->options.size;
	float *real = bench_download(dreal, n * sizeof(float)), *imaginary = bench_download(dimaginary, n * sizeof(float));
	bool right = true;

	for (size_t i = 0; i < n && right; i += 1 + n / 4096) {
		double re = 0, im = 0;
		for (const struct sample *s = samples; s < samples + Samples; s++) {
			double angle = 2 * M_PI * ((double)s->x * at[0][i] + (double)s->y * at[1][i] + (double)s->z * at[2][i]);
			re += s->strength * cos(angle);
			im += s->strength * sin(angle);
		}
		right = bench_close("real", i, real[i], re, 0.02) && bench_close("imaginary", i, imaginary[i], im, 0.02);
	}
	free(real);
	free(imaginary);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	for (int d = 0; d < 3; d++) {
		CHECK(cuMemFree(dat[d]));
		free(at[d]);
	}
	CHECK(cuMemFree(dsamples));
	CHECK(cuMemFree(dreal));
	CHECK(cuMemFree(dimaginary));
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "mriq", .about = "computes the matrix Q of a magnetic resonance picture", .unit = "waves", .size_means = "places",
		.ptx = ptx_mriq, .size = 4096, .least = 1, .most = 1 << 26,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
