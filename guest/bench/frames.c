/*
 * frames draws like a game: each frame is a number of groups of commands, one band of the picture each, between which
 * the processor computes a little; the program waits for a frame before it starts the next. --pause-ms is the game's
 * computing time per frame.
 */
#include <stdlib.h>

#include "bench.h"
#include "scene.h"

EMBED_PTX(scene);

enum { Groups = 20, Discs = 64 };

static const int64_t GroupNs = 60000; /* on the processor, before each group */

static struct disc *discs;
static CUdeviceptr ddiscs, dpixels;
static CUfunction draw;
static unsigned frame;

static void prepare(struct bench *x)
{
	size_t rows = Groups * x->options.size;

	discs = bench_allocate(Discs, sizeof *discs);
	scene_fill(discs, Discs, rows, 1);
	ddiscs = bench_upload(discs, Discs * sizeof *discs);
	dpixels = bench_upload(NULL, rows * SceneWidth * sizeof(uint32_t));
	draw = bench_function(x, "draw");
	x->work = 1;
}

static void compute(int64_t ns)
{
	for (int64_t end = bench_now() + ns; bench_now() < end;)
		;
}

static void launch(struct bench *x)
{
	unsigned rows = (unsigned)x->options.size, width = SceneWidth, n = Discs;

	frame++;
	for (unsigned first = 0; first < Groups * rows; first += rows) {
		void *args[] = { &dpixels, &width, &first, &rows, &ddiscs, &n, &frame };

		compute(GroupNs);
		bench_launch(x, draw, bench_blocks(rows * width, SceneThreads, 1024), SceneThreads, args);
	}
}

static bool check(struct bench *x)
{
	size_t rows = Groups * x->options.size;
	uint32_t *pixels = bench_download(dpixels, rows * SceneWidth * sizeof *pixels);
	bool right = scene_right(pixels, rows, discs, Discs, frame, 7);

	free(pixels);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(ddiscs));
	CHECK(cuMemFree(dpixels));
	free(discs);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "frames", .about = "draws the frames of a game, 20 groups of commands each", .unit = "frames", .size_means = "rows of a group",
		.ptx = ptx_scene, .size = 4, .least = 1, .most = 1 << 16,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
