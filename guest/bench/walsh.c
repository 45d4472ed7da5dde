/* walsh computes the fast Walsh transform: several kernels in each round, each with other strides. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

EMBED_PTX(walsh);

enum { Section = 2048 };

static float *in;
static CUdeviceptr din, dout;
static CUfunction global, shared;

/* Returns the largest power of two that does not exceed --size. */
static size_t length(struct bench *x)
{
	return (size_t)1 << (63 - __builtin_clzll(x->options.size));
}

static void prepare(struct bench *x)
{
	size_t n = length(x);

	in = bench_allocate(n, sizeof *in);
	bench_fill(in, n, 1, -1, 1);
	din = bench_upload(in, n * sizeof *in);
	dout = bench_upload(NULL, n * sizeof *in);
	global = bench_function(x, "walshGlobal");
	shared = bench_function(x, "walshShared");
	x->work = (double)n;
}

/*
 * Two stages at a time while sections are too long for shared memory; then the rest. The first kernel reads the input,
 * the others their predecessor's output.
 */
static void launch(struct bench *x)
{
	unsigned n = (unsigned)length(x), part = n;
	CUdeviceptr from = din;

	for (; part > Section; part /= 4) {
		unsigned quarter = part / 4;
		void *args[] = { &from, &dout, &quarter, &n };
		bench_launch(x, global, bench_blocks(n / 4, 256, 1024), 256, args);
		from = dout;
	}
	unsigned threads = part > 1 ? part / 2 : 1;
	void *args[] = { &from, &dout, &part };
	bench_launch(x, shared, n / part, threads < 512 ? threads : 512, args);
}

/* The transform on the processor, in place and in double precision. */
static void transform(double *v, size_t n)
{
	for (size_t half = 1; half < n; half *= 2)
		for (size_t at = 0; at < n; at += 2 * half)
			for (size_t i = at; i < at + half; i++) {
				double a = v[i], b = v[i + half];
				v[i] = a + b;
				v[i + half] = a - b;
			}
}

static bool check(struct bench *x)
{
	size_t n = length(x);
	float *out = bench_download(dout, n * sizeof *out);
	double *want = bench_allocate(n, sizeof *want);
	bool right = true;

	for (size_t i = 0; i < n; i++)
		want[i] = in[i];
	transform(want, n);
	for (size_t i = 0; i < n && right; i++)
		right = bench_close("out", i, out[i], want[i], 1e-6 * (double)n + 1e-4);
	free(want);
	free(out);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(din));
	CHECK(cuMemFree(dout));
	free(in);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "walsh", .about = "takes the fast Walsh transform", .unit = "elements",
		.size_means = "elements, rounded down to a power of two",
		.ptx = ptx_walsh, .size = 1 << 20, .least = 1, .most = 1 << 30,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
