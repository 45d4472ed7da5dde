/*
 * Sharpens a grey picture: five times each pixel minus its four neighbours. Pixels beyond the border equal the nearest
 * one.
 */
#include "device.h"

extern "C" __global__ void sharpen(const unsigned char *from, unsigned char *to, unsigned side)
{
	for (unsigned i = firstElement(); i < side * side; i += elementStride()) {
		const unsigned row = i / side, column = i % side;
		const int v = 5 * from[i] - from[(row > 0 ? row - 1 : row) * side + column] - from[(row + 1 < side ? row + 1 : row) * side + column] -
			from[row * side + (column > 0 ? column - 1 : column)] - from[row * side + (column + 1 < side ? column + 1 : column)];
		to[i] = (unsigned char)(v < 0 ? 0 : v > 255 ? 255 : v);
	}
}
