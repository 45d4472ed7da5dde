#include "scene.h"

#include "bench.h"

void scene_fill(struct disc *discs, size_t n, size_t rows, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		int32_t radius = 8 + (int32_t)(bench_random(&seed) % 56);
		discs[i] = (struct disc){
			.x = (int32_t)(bench_random(&seed) % SceneWidth), .y = (int32_t)(bench_random(&seed) % rows), .square = radius * radius,
			.alpha = (int32_t)(bench_random(&seed) % 256), .red = (int32_t)(bench_random(&seed) % 256),
			.green = (int32_t)(bench_random(&seed) % 256), .blue = (int32_t)(bench_random(&seed) % 256),
			.speed = (int32_t)(bench_random(&seed) % 4),
		};
	}
}

static uint32_t pixel(int x, int y, const struct disc *discs, size_t n, unsigned frame)
{
	int red = 0, green = 0, blue = 0;

	for (const struct disc *d = discs; d < discs + n; d++) {
		int dx = x - (int)(((unsigned)d->x + frame * (unsigned)d->speed) % SceneWidth), dy = y - d->y;
		if (dx * dx + dy * dy > d->square)
			continue;
		red += (d->red - red) * d->alpha / 256;
		green += (d->green - green) * d->alpha / 256;
		blue += (d->blue - blue) * d->alpha / 256;
	}
	return (uint32_t)(red << 16 | green << 8 | blue);
}

bool scene_right(const uint32_t *pixels, size_t rows, const struct disc *discs, size_t n, unsigned frame, size_t step)
{
	bool right = true;

	for (size_t i = 0; i < rows * SceneWidth && right; i += step)
		right = bench_close("pixel", i, pixels[i], pixel((int)(i % SceneWidth), (int)(i / SceneWidth), discs, n, frame), 0);
	return right;
}
