/* The repulsion of electrons between all pairs of pairs of shells, each of which is a
 * sum of Gaussians: (ab|cd) for s-shells, whose integral over a Rys polynomial is
 * taken at eight places. */
#include "device.h"

enum { PerPair = 9 };

/* The product of two Gaussians is a Gaussian, with this exponent, weight and centre. */
struct Product {
	float exponent, weight, x, y, z;
};

/* The integral of exp(-t u u) over u from 0 to 1, after Gauss and Legendre. */
static __device__ inline float boys(float t)
{
	static constexpr float places[4] = { 0.18343464f, 0.52553241f, 0.79666648f, 0.96028986f };
	static constexpr float weights[4] = { 0.36268378f, 0.31370665f, 0.22238103f, 0.10122854f };
	float sum = 0;

	for (int i = 0; i < 4; i++) {
		const float low = 0.5f - 0.5f * places[i], high = 0.5f + 0.5f * places[i];
		sum += weights[i] * (fastExp(-t * low * low) + fastExp(-t * high * high));
	}
	return 0.5f * sum;
}

extern "C" __global__ void rpes(const Product *products, float *integrals, unsigned pairs)
{
	for (unsigned i = firstElement(); i < pairs * pairs; i += elementStride()) {
		const Product *bra = products + i / pairs * PerPair, *ket = products + i % pairs * PerPair;
		float sum = 0;

		for (unsigned k = 0; k < PerPair * PerPair; k++) {
			const Product p = bra[k / PerPair], q = ket[k % PerPair];
			const float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
			const float both = p.exponent + q.exponent, product = p.exponent * q.exponent;
			const float t = product / both * (dx * dx + dy * dy + dz * dz);
			sum += p.weight * q.weight * inverseRoot(both) / product * boys(t);
		}
		integrals[i] = 34.9868367f * sum; /* 2 pi^(5/2) */
	}
}
