/* C = A * B for square matrices of n rows, n a multiple of the tile's side. Each
 * block computes one tile of C, and keeps a tile of A and one of B in shared
 * memory. */
#include "device.h"

enum { Tile = 16 };

extern "C" __global__ void matmul(const float *A, const float *B, float *C, unsigned n)
{
	__shared__ float a[Tile][Tile], b[Tile][Tile];
	const unsigned x = threadIdx.x, y = threadIdx.y;
	const unsigned row = blockIdx.y * Tile + y, column = blockIdx.x * Tile + x;
	float sum = 0;

	for (unsigned k = 0; k < n; k += Tile) {
		a[y][x] = A[row * n + k + x];
		b[y][x] = B[(k + y) * n + column];
		__syncthreads();
		for (unsigned i = 0; i < Tile; i++)
			sum += a[y][i] * b[i][x];
		__syncthreads();
	}
	C[row * n + column] = sum;
}
