/* A synthetic scene for programs that draw, and the output of kernels/scene.cu for it. */
#ifndef SCENE_H
#define SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SceneWidth = 256, SceneThreads = 128 };

struct disc {
	int32_t x, y, square, alpha, red, green, blue, speed;
};

/* n discs in a picture of so many rows. */
void scene_fill(struct disc *discs, size_t n, size_t rows, uint32_t seed);

/* Reports whether pixels show the discs in a frame; checks every step-th pixel. */
bool scene_right(const uint32_t *pixels, size_t rows, const struct disc *discs, size_t n, unsigned frame, size_t step);

#endif
