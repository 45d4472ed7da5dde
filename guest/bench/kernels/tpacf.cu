/*
 * Histogram of the distances between pairs of points on a sphere, by the cosine of the angle between them: bins[b]
 * counts those with a cosine of at least edges[b], and below the previous edge. Edges decrease, and the last is below
 * -1. bins must be zero before.
 */
#include "device.h"

enum { Bins = 20 };

struct __attribute__((aligned(16))) Point {
	float x, y, z, unused;
};

extern "C" __global__ void tpacf(const Point *points, unsigned n, const float *edges, unsigned *bins)
{
	__shared__ unsigned counts[Bins];

	if (threadIdx.x < Bins)
		counts[threadIdx.x] = 0;
	__syncthreads();
	for (unsigned i = firstElement(); i < n; i += elementStride()) {
		const Point p = points[i];
		for (unsigned j = i + 1; j < n; j++) {
			const Point q = points[j];
			const float cosine = p.x * q.x + p.y * q.y + p.z * q.z;
			unsigned low = 0, high = Bins - 1;
			while (low < high) {
				const unsigned middle = (low + high) / 2;
				if (cosine >= edges[middle])
					high = middle;
				else
					low = middle + 1;
			}
			atomicAdd(&counts[low], 1);
		}
	}
	__syncthreads();
	if (threadIdx.x < Bins)
		atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
}
