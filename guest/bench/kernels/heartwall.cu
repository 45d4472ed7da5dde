/*
 * Tracks points in a film by their surroundings: each template is compared at all places near its previous one, and
 * moves to the place of the least difference. One block for each point, one thread for each of the places in turn.
 */
#include "device.h"

enum { Side = 16, Reach = 10, Across = 2 * Reach + 1, Places = Across * Across, Threads = 128 };

/*
 * points has x and y of each template's corner in the first picture, and moved its displacement from there: the first
 * of the best places, row by row. All pixels within reach of a point are inside the picture.
 */
extern "C" __global__ void heartwall(const unsigned char *first, const unsigned char *picture, unsigned width,
	const unsigned *points, int *moved, unsigned *difference)
{
	__shared__ int pattern[Side][Side];
	__shared__ unsigned least[Threads], place[Threads];
	const unsigned px = points[2 * blockIdx.x], py = points[2 * blockIdx.x + 1], me = threadIdx.x;
	unsigned best = ~0u, where = 0;

	for (unsigned i = me; i < Side * Side; i += Threads)
		pattern[i / Side][i % Side] = first[(py + i / Side) * width + px + i % Side];
	__syncthreads();
	for (unsigned p = me; p < Places; p += Threads) {
		const unsigned char *corner = picture + (py - Reach + p / Across) * width + px - Reach + p % Across;
		unsigned sum = 0;
		for (unsigned y = 0; y < Side; y++)
			for (unsigned x = 0; x < Side; x++) {
				const int d = corner[y * width + x] - pattern[y][x];
				sum += (unsigned)(d < 0 ? -d : d);
			}
		if (sum < best) {
			best = sum;
			where = p;
		}
	}
	least[me] = best;
	place[me] = where;
	for (unsigned half = Threads / 2; half > 0; half /= 2) {
		__syncthreads();
		if (me < half && (least[me + half] < least[me] || (least[me + half] == least[me] && place[me + half] < place[me]))) {
			least[me] = least[me + half];
			place[me] = place[me + half];
		}
	}
	if (me == 0) {
		moved[2 * blockIdx.x] = (int)(place[0] % Across) - Reach;
		moved[2 * blockIdx.x + 1] = (int)(place[0] / Across) - Reach;
		difference[blockIdx.x] = least[0];
	}
}
