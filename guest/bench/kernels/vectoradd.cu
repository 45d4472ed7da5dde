/* c = a + b. */
#include "device.h"

extern "C" __global__ void vectorAdd(const float *a, const float *b, float *c, unsigned n)
{
	for (unsigned i = firstElement(); i < n; i += elementStride())
		c[i] = a[i] + b[i];
}
