/*
 * A kernel of adjustable duration: each thread runs a number of steps of a xorshift generator, which compilers cannot
 * shorten, and stores its final state.
 */
#include "device.h"

extern "C" __global__ void busy(unsigned *out, unsigned steps)
{
	unsigned x = firstElement() + 1;

	for (unsigned i = 0; i < steps; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
	}
	out[firstElement()] = x;
}
