/*
 * busy keeps the accelerator busy: each kernel takes about --kernel-ms. Before the timed loop it calibrates the number
 * of steps for that; where other programs disturb the calibration, --steps gives the number instead.
 */
#include <stdlib.h>

#include "bench.h"
#include "report.h"

EMBED_PTX(busy);

enum { Threads = 256, Tries = 3 };

static CUdeviceptr dout;
static CUfunction busy;
static unsigned steps;

static void launch(struct bench *x)
{
	void *args[] = { &dout, &steps };

	bench_launch(x, busy, (unsigned)x->options.size, Threads, args);
}

/* The minimum of a few times of one kernel with n steps: other load on the machine can only add to it. */
static double least_ns(struct bench *x, unsigned n)
{
	double least = 0;

	steps = n;
	for (int i = 0; i < Tries; i++) {
		int64_t begin = bench_now();
		launch(x);
		CHECK(cuStreamSynchronize(x->stream));
		double took = (double)(bench_now() - begin);
		if (i == 0 || took < least)
			least = took;
	}
	return least;
}

/*
 * Doubles the steps until they take at least half of --kernel-ms, or 4 ms if that is less, and extrapolates from there,
 * so that the cost of the launch itself is not attributed to the steps.
 */
static unsigned calibrate(struct bench *x)
{
	double target = x->options.kernel_ms * 1e6, enough = target / 2 < 4e6 ? target / 2 : 4e6;
	unsigned n = 16;

	least_ns(x, 1); /* the first launch compiles */
	double launching = least_ns(x, 1), took = least_ns(x, n) - launching;
	for (; took < enough && n < 1u << 30; took = least_ns(x, n) - launching)
		n *= 2;
	double wanted = took > 0 ? (target - launching) / (took / n) : 1;
	return wanted < 1 ? 1 : wanted > UINT32_MAX ? UINT32_MAX : (unsigned)wanted;
}

static void prepare(struct bench *x)
{
	dout = bench_upload(NULL, x->options.size * Threads * sizeof(uint32_t));
	busy = bench_function(x, "busy");
	steps = x->options.steps ? x->options.steps : calibrate(x);
	x->work = (double)steps * (double)x->options.size * Threads;
}

static uint32_t step(uint32_t v)
{
	v ^= v << 13;
	v ^= v >> 17;
	return v ^ v << 5;
}

/* Checks some of the threads: one takes as long on the processor. */
static bool check(struct bench *x)
{
	size_t n = x->options.size * Threads;
	uint32_t *out = bench_download(dout, n * sizeof *out);
	bool right = true;

	for (size_t i = 0; i < n && right; i += n / 4 + 1) {
		uint32_t want = (uint32_t)i + 1;
		for (unsigned s = 0; s < steps; s++)
			want = step(want);
		right = bench_close("out", i, out[i], want, 0);
	}
	free(out);
	return right;
}

static void details(struct bench *x)
{
	report_number("kernel_ms", x->options.kernel_ms);
	report_number("steps", steps);
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dout));
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "busy", .about = "runs kernels of a given length", .unit = "steps",
		.size_means = "blocks of 256 threads",
		.ptx = ptx_busy, .size = 16, .least = 1, .most = 65535, .timed = true,
		.prepare = prepare, .launch = launch, .check = check, .details = details, .release = release,
	};
	return bench_main(argc, argv, &w);
}
