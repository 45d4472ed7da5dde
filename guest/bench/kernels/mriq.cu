/*
 * The matrix Q of a magnetic resonance picture that was sampled along any path: for each place the sum over the samples
 * of one wave each.
 */
#include "device.h"

struct __attribute__((aligned(16))) Sample {
	float x, y, z, strength;
};

extern "C" __global__ void mriQ(const Sample *samples, unsigned count, const float *x, const float *y, const float *z,
	float *real, float *imaginary, unsigned n)
{
	for (unsigned i = firstElement(); i < n; i += elementStride()) {
		const float px = x[i], py = y[i], pz = z[i];
		float re = 0, im = 0;

		for (unsigned k = 0; k < count; k++) {
			const Sample s = samples[k];
			const float turns = s.x * px + s.y * py + s.z * pz;
			const float angle = 6.28318531f * (turns - roundDown(turns)); /* approximations are good for small ones */
			re += s.strength * fastCos(angle);
			im += s.strength * fastSin(angle);
		}
		real[i] = re;
		imaginary[i] = im;
	}
}
