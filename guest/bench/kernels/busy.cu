/* A kernel that lasts as long as it is told to: each thread takes so many steps
 * of a xorshift generator, which compilers can't shorten, and leaves where it
 * got to. */
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
