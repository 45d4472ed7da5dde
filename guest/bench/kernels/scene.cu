/* Rows of a picture of translucent discs that drift to the right, one over the
 * other. Whole numbers throughout, so that it is the same everywhere. */
#include "device.h"

struct Disc {
	int x, y, square, alpha, red, green, blue, speed; /* square of the radius; alpha of 256 */
};

extern "C" __global__ void draw(unsigned *pixels, unsigned width, unsigned first, unsigned rows, const Disc *discs,
	unsigned n, unsigned frame)
{
	for (unsigned i = firstElement(); i < rows * width; i += elementStride()) {
		const int x = (int)(i % width), y = (int)(first + i / width);
		int red = 0, green = 0, blue = 0;

		for (unsigned k = 0; k < n; k++) {
			const Disc d = discs[k];
			const int dx = x - (int)(((unsigned)d.x + frame * (unsigned)d.speed) % width), dy = y - d.y;
			if (dx * dx + dy * dy <= d.square) {
				red += (d.red - red) * d.alpha / 256;
				green += (d.green - green) * d.alpha / 256;
				blue += (d.blue - blue) * d.alpha / 256;
			}
		}
		pixels[first * width + i] = (unsigned)(red << 16 | green << 8 | blue);
	}
}
