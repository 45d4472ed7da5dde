/*
 * heartwall tracks points of a heart's wall through the pictures of a film: one long kernel for each picture. The film
 * is synthetic: each point's surroundings move by a few pixels from picture to picture, with noise.
 */
#include <limits.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(heartwall);

enum { Side = 16, Reach = 10, Across = 2 * Reach + 1, Cell = Side + 2 * Reach, Pictures = 4, Threads = 128 };

static uint8_t *film; /* Pictures, one after another; each has a row of cells, one for each point */
static uint32_t *points;
static size_t width;
static unsigned round_;
static CUdeviceptr dfilm, dpoints, dmoved, ddifference;
static CUfunction follow;

static size_t picture_bytes(void)
{
	return width * Cell;
}

/* Noise everywhere, and each point's pattern where the picture has it. */
static void draw(struct bench *x)
{
	uint32_t seed = 1;

	for (size_t i = 0; i < Pictures * picture_bytes(); i++)
		film[i] = (uint8_t)bench_random(&seed);
	for (size_t p = 0; p < x->options.size; p++) {
		unsigned left = (unsigned)p * Cell + Reach;
		points[2 * p] = left;
		points[2 * p + 1] = Reach;
		for (size_t k = 1; k < Pictures; k++) {
			unsigned dx = bench_random(&seed) % Across, dy = bench_random(&seed) % Across;
			for (unsigned i = 0; i < Side * Side; i++) {
				size_t row = Reach + i / Side, column = left + i % Side;
				size_t to = k * picture_bytes() + (row + dy - Reach) * width + column + dx - Reach;
				film[to] = (uint8_t)(film[row * width + column] + bench_random(&seed) % 8);
			}
		}
	}
}

static void prepare(struct bench *x)
{
	size_t n = x->options.size;

	width = n * Cell;
	film = bench_allocate(Pictures, picture_bytes());
	points = bench_allocate(2 * n, sizeof *points);
	draw(x);
	dfilm = bench_upload(film, Pictures * picture_bytes());
	dpoints = bench_upload(points, 2 * n * sizeof *points);
	dmoved = bench_upload(NULL, 2 * n * sizeof(int32_t));
	ddifference = bench_upload(NULL, n * sizeof(uint32_t));
	follow = bench_function(x, "heartwall");
	x->work = (double)n;
}

static void launch(struct bench *x)
{
	round_ = (round_ + 1) % Pictures;
	CUdeviceptr picture = dfilm + round_ * picture_bytes();
	unsigned wide = (unsigned)width;
	void *args[] = { &dfilm, &picture, &wide, &dpoints, &dmoved, &ddifference };

	bench_launch(x, follow, (unsigned)x->options.size, Threads, args);
}

/* Returns the difference between a point's surroundings and those at a place of the last picture. */
static uint32_t difference(size_t p, int dx, int dy)
{
	const uint8_t *now = film + round_ * picture_bytes();
	uint32_t sum = 0;

	for (unsigned i = 0; i < Side * Side; i++) {
		size_t row = points[2 * p + 1] + i / Side, column = points[2 * p] + i % Side;
		sum += (uint32_t)abs(now[(row + (size_t)dy) * width + column + (size_t)dx] - film[row * width + column]);
	}
	return sum;
}

static bool found(size_t p, const int32_t *moved, uint32_t got)
{
	uint32_t least = UINT32_MAX;
	int bx = 0, by = 0;

	for (int dy = -Reach; dy <= Reach; dy++)
		for (int dx = -Reach; dx <= Reach; dx++) {
			uint32_t d = difference(p, dx, dy);
			if (d < least) {
				least = d;
				bx = dx;
				by = dy;
			}
		}
	return bench_close("difference", p, got, least, 0) && bench_close("moved right", p, moved[2 * p], bx, 0) &&
		bench_close("moved down", p, moved[2 * p + 1], by, 0);
}

static bool check(struct bench *x)
{
	size_t n = x->options.size;
	int32_t *moved = bench_download(dmoved, 2 * n * sizeof *moved);
	uint32_t *least = bench_download(ddifference, n * sizeof *least);
	bool right = true;

	for (size_t p = 0; p < n && right; p++)
		right = found(p, moved, least[p]);
	free(least);
	free(moved);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(dfilm));
	CHECK(cuMemFree(dpoints));
	CHECK(cuMemFree(dmoved));
	CHECK(cuMemFree(ddifference));
	free(points);
	free(film);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "heartwall", .about = "follows points through the pictures of a film", .unit = "points", .size_means = "points",
		.ptx = ptx_heartwall, .size = 51, .least = 1, .most = 65535,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
