/* One step of n bodies that attract each other, n a multiple of the block's
 * size, which is the tile's. Each thread moves one body; a tile of the others at
 * a time is in shared memory. */
#include "device.h"

enum { Tile = 256 };

struct __attribute__((aligned(16))) Body {
	float x, y, z, mass;
};

extern "C" __global__ void nbody(const Body *from, Body *to, Body *velocity, float seconds, unsigned n)
{
	__shared__ Body tile[Tile];
	const unsigned me = firstElement();
	const Body b = from[me];
	float ax = 0, ay = 0, az = 0;

	for (unsigned first = 0; first < n; first += Tile) {
		tile[threadIdx.x] = from[first + threadIdx.x];
		__syncthreads();
		for (unsigned i = 0; i < Tile; i++) {
			const Body o = tile[i];
			const float dx = o.x - b.x, dy = o.y - b.y, dz = o.z - b.z;
			/* Softening: a body doesn't attract itself, and the attraction of close bodies is bounded. */
			const float square = dx * dx + dy * dy + dz * dz + 1e-3f;
			const float inverse = inverseRoot(square);
			const float pull = o.mass * inverse * inverse * inverse;
			ax += pull * dx;
			ay += pull * dy;
			az += pull * dz;
		}
		__syncthreads();
	}
	Body v = velocity[me];
	v.x += ax * seconds;
	v.y += ay * seconds;
	v.z += az * seconds;
	velocity[me] = v;
	to[me] = { b.x + v.x * seconds, b.y + v.y * seconds, b.z + v.z * seconds, b.mass };
}
