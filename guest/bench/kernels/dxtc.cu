/*
 * Compresses a picture of three planes to DXT1: for each 4 x 4 pixels two colours of 16 bits, and for each pixel the
 * index of one of these or of the two colours between them. One thread for each 4 x 4 pixels. Values are truncated to
 * integers from 0 to 255.
 */
#include "device.h"

static __device__ inline int whole(float v) { return v < 0 ? 0 : v > 255 ? 255 : (int)v; }

/* Packs a colour into 5, 6 and 5 bits, and unpacks it to full width. */
static __device__ inline unsigned pack(const int *c) { return (unsigned)(c[0] >> 3 << 11 | c[1] >> 2 << 5 | c[2] >> 3); }

static __device__ inline void unpack(unsigned packed, int *c)
{
	const int red = (int)(packed >> 11), green = (int)(packed >> 5 & 63), blue = (int)(packed & 31);
	c[0] = red << 3 | red >> 2;
	c[1] = green << 2 | green >> 4;
	c[2] = blue << 3 | blue >> 2;
}

extern "C" __global__ void dxt1(const float *red, const float *green, const float *blue, unsigned *blocks, unsigned side)
{
	const unsigned across = side / 4;

	for (unsigned b = firstElement(); b < across * across; b += elementStride()) {
		const unsigned corner = b / across * 4 * side + b % across * 4;
		int least[3] = { 255, 255, 255 }, most[3] = { 0, 0, 0 };
		for (unsigned i = 0; i < 16; i++) {
			const unsigned at = corner + i / 4 * side + i % 4;
			const int c[3] = { whole(red[at]), whole(green[at]), whole(blue[at]) };
			for (int k = 0; k < 3; k++) {
				least[k] = c[k] < least[k] ? c[k] : least[k];
				most[k] = c[k] > most[k] ? c[k] : most[k];
			}
		}
		const unsigned first = pack(most), second = pack(least);
		int low[3], high[3];
		unpack(first, high);
		unpack(second, low);
		unsigned indices = 0;
		for (unsigned i = 0; i < 16; i++) {
			const unsigned at = corner + i / 4 * side + i % 4;
			const int c[3] = { whole(red[at]), whole(green[at]), whole(blue[at]) };
			int best = 1 << 30;
			unsigned which = 0;
			for (unsigned p = 0; p < 4; p++) { /* high, low, two thirds high, two thirds low */
				const int part = p == 0 ? 3 : p == 1 ? 0 : p == 2 ? 2 : 1;
				int far = 0;
				for (int k = 0; k < 3; k++) {
					const int d = c[k] - (part * high[k] + (3 - part) * low[k]) / 3;
					far += d * d;
				}
				if (far < best) {
					best = far;
					which = p;
				}
			}
			indices |= which << 2 * i;
		}
		blocks[2 * b] = first | second << 16;
		blocks[2 * b + 1] = indices;
	}
}
