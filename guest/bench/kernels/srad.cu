/*
 * Removes speckles from a picture by diffusion that stops at edges (SRAD): the coefficients of all pixels, then one
 * step with them. Pixels beyond the border equal the nearest one.
 */
#include "device.h"

static __device__ inline float limited(float v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

struct Around {
	float north, south, west, east;
};

static __device__ inline Around around(const float *p, unsigned rows, unsigned columns, unsigned row, unsigned column)
{
	return { p[(row > 0 ? row - 1 : 0) * columns + column], p[(row + 1 < rows ? row + 1 : row) * columns + column],
		p[row * columns + (column > 0 ? column - 1 : 0)], p[row * columns + (column + 1 < columns ? column + 1 : column)] };
}

extern "C" __global__ void sradCoefficients(const float *picture, float *coefficients, unsigned rows, unsigned columns, float speckle)
{
	for (unsigned i = firstElement(); i < rows * columns; i += elementStride()) {
		const float here = picture[i];
		const Around a = around(picture, rows, columns, i / columns, i % columns);
		const float n = a.north - here, s = a.south - here, w = a.west - here, e = a.east - here;
		const float gradient = (n * n + s * s + w * w + e * e) / (here * here);
		const float laplacian = (n + s + w + e) / here;
		const float root = 1 + 0.25f * laplacian;
		const float q = (0.5f * gradient - 0.0625f * laplacian * laplacian) / (root * root);
		coefficients[i] = limited(1 / (1 + (q - speckle) / (speckle * (1 + speckle))));
	}
}

extern "C" __global__ void sradStep(const float *from, const float *coefficients, float *to, unsigned rows, unsigned columns, float rate)
{
	for (unsigned i = firstElement(); i < rows * columns; i += elementStride()) {
		const unsigned row = i / columns, column = i % columns;
		const float here = from[i];
		const Around a = around(from, rows, columns, row, column), c = around(coefficients, rows, columns, row, column);
		const float mine = coefficients[i];
		to[i] = here + 0.25f * rate * (mine * (a.north - here) + c.south * (a.south - here) + mine * (a.west - here) + c.east * (a.east - here));
	}
}
