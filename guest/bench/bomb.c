/*
 * bomb floods the accelerator with commands of any length, like an inconsiderate program: many translucent layers in
 * one kernel, repeatedly.
 */
#include <stdlib.h>

#include "bench.h"
#include "scene.h"

EMBED_PTX(scene);

enum { Rows = 16 };

static struct disc *discs;
static CUdeviceptr ddiscs, dpixels;
static CUfunction draw;
static unsigned frame;

static void prepare(struct bench *x)
{
	discs = bench_allocate(x->options.size, sizeof *discs);
	scene_fill(discs, x->options.size, Rows, 1);
	ddiscs = bench_upload(discs, x->options.size * sizeof *discs);
	dpixels = bench_upload(NULL, Rows * SceneWidth * sizeof(uint32_t));
	draw = bench_function(x, "draw");
	x->work = (double)x->options.size;
}

static void launch(struct bench *x)
{
	unsigned width = SceneWidth, first = 0, rows = Rows, n = (unsigned)x->options.size;
	void *args[] = { &dpixels, &width, &first, &rows, &ddiscs, &n, &frame };

	frame++;
	bench_launch(x, draw, bench_blocks(rows * width, SceneThreads, 1024), SceneThreads, args);
}

static bool check(struct bench *x)
{
	uint32_t *pixels = bench_download(dpixels, Rows * SceneWidth * sizeof *pixels);
	bool right = scene_right(pixels, Rows, discs, x->options.size, frame, 1);

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
		.name = "bomb", .about = "floods the accelerator with long commands", .unit = "layers", .size_means = "layers in a command",
		.ptx = ptx_scene, .size = 512, .least = 1, .most = 1 << 24,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
