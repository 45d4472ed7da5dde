/* The electric potential of point charges in the points of a plane. */
#include "device.h"

struct __attribute__((aligned(16))) Atom {
	float x, y, z, charge;
};

extern "C" __global__ void coulomb(float *potential, unsigned side, float spacing, float height, const Atom *atoms, unsigned n)
{
	for (unsigned i = firstElement(); i < side * side; i += elementStride()) {
		const float x = spacing * (float)(i % side), y = spacing * (float)(i / side);
		float sum = 0;

		for (unsigned k = 0; k < n; k++) {
			const Atom a = atoms[k];
			const float dx = x - a.x, dy = y - a.y, dz = height - a.z;
			sum += a.charge * inverseRoot(dx * dx + dy * dy + dz * dz);
		}
		potential[i] = sum;
	}
}
