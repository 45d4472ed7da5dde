/*
 * nbody moves bodies that attract each other, one step in each round: much arithmetic on data that a block keeps in
 * shared memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

EMBED_PTX(nbody);

enum { Tile = 256 };

struct body {
	float x, y, z, mass;
};

static const float seconds = 1.0f / 1024;
static struct body *start;
static CUdeviceptr dfrom, dto, dvelocity;
static CUfunction nbody;

/* The number of bodies, rounded up to whole tiles. */
static size_t count(struct bench *x)
{
	return (x->options.size + Tile - 1) / Tile * Tile;
}

static void prepare(struct bench *x)
{
	size_t n = count(x), bytes = n * sizeof *start;

	start = bench_allocate(n, sizeof *start);
	bench_fill((float *)start, 4 * n, 1, -1, 1);
	for (size_t i = 0; i < n; i++)
		start[i].mass = fabsf(start[i].mass);
	dfrom = bench_upload(start, bytes);
	dto = bench_upload(NULL, bytes);
	dvelocity = bench_upload(NULL, bytes);
	nbody = bench_function(x, "nbody");
	x->work = (double)n * (double)n;
}

/* Each round is the first step, from rest. */
static void launch(struct bench *x)
{
	unsigned n = (unsigned)count(x);
	float s = seconds;
	void *args[] = { &dfrom, &dto, &dvelocity, &s, &n };

	CHECK(cuMemsetD8Async(dvelocity, 0, n * sizeof *start, x->stream));
	bench_launch(x, nbody, n / Tile, Tile, args);
}

/* Computes a body's position after a step, in double precision. */
static void step(size_t n, const struct body *b, double to[3])
{
	double a[3] = { 0, 0, 0 };

	for (const struct body *o = start; o < start + n; o++) {
		double d[3] = { (double)o->x - b->x, (double)o->y - b->y, (double)o->z - b->z };
		double square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 1e-3;
		for (int i = 0; i < 3; i++)
			a[i] += o->mass * d[i] / (square * sqrt(square));
	}
	to[0] = b->x + a[0] * seconds * seconds;
	to[1] = b->y + a[1] * seconds * seconds;
	to[2] = b->z + a[2] * seconds * seconds;
}

/* Checks all bodies if they are few, or else some. The velocities are checked,
 * as positions hardly change in a step. */
static bool check(struct bench *x)
{
	size_t n = count(x), every = 1 + n / 1024;
	struct body *v = bench_download(dvelocity, n * sizeof *v), *p = bench_download(dto, n * sizeof *p);
	bool right = true;

	for (size_t i = 0; i < n && right; i += every) {
		const struct body *b = &start[i];
		double to[3];
		step(n, b, to);
		right = bench_close("x", i, p[i].x, to[0], 1e-6) &&
			bench_close("y", i, p[i].y, to[1], 1e-6) &&
			bench_close("z", i, p[i].z, to[2], 1e-6) &&
			bench_close("velocity", i, v[i].x, (to[0] - b->x) / seconds, 1e-8 * (double)n) &&
			p[i].mass == b->mass;
	}
	free(v);
	free(p);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dfrom));
	CHECK(cuMemFree(dto));
	CHECK(cuMemFree(dvelocity));
	free(start);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "nbody", .about = "moves bodies that attract each other", .unit = "pairs", .size_means = "bodies",
		.ptx = ptx_nbody, .size = 1024, .least = 1, .most = 1 << 20,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
