/*
 * Factorises a matrix into L and U in place, without pivoting; L has ones on its diagonal. Tile by tile: for each tile
 * of the diagonal the tile itself, then those right of it and below it, then all the rest. The dimensions are whole
 * tiles.
 */
#include "device.h"

enum { Tile = 16 };

/* The tile on the diagonal: one block of as many threads as the tile has rows. */
extern "C" __global__ void ludDiagonal(float *A, unsigned n, unsigned at)
{
	__shared__ float t[Tile][Tile];
	const unsigned me = threadIdx.x;

	for (unsigned i = 0; i < Tile; i++)
		t[i][me] = A[(at + i) * n + at + me];
	for (unsigned k = 0; k < Tile - 1; k++) {
		__syncthreads();
		if (me > k) {
			const float l = t[me][k] / t[k][k];
			t[me][k] = l;
			for (unsigned i = k + 1; i < Tile; i++)
				t[me][i] -= l * t[k][i];
		}
	}
	__syncthreads();
	for (unsigned i = 0; i < Tile; i++)
		A[(at + i) * n + at + me] = t[i][me];
}

/*
 * The tiles right of it become U and those below it L: a block for one of each, with twice as many threads as a tile
 * has rows.
 */
extern "C" __global__ void ludPerimeter(float *A, unsigned n, unsigned at)
{
	__shared__ float t[Tile][Tile], row[Tile][Tile], column[Tile][Tile];
	const unsigned next = at + (blockIdx.x + 1) * Tile, me = threadIdx.x % Tile;

	if (threadIdx.x < Tile)
		for (unsigned i = 0; i < Tile; i++) {
			t[i][me] = A[(at + i) * n + at + me];
			row[i][me] = A[(at + i) * n + next + me];
		}
	else
		for (unsigned i = 0; i < Tile; i++)
			column[i][me] = A[(next + i) * n + at + me];
	__syncthreads();
	if (threadIdx.x < Tile) /* a column of U */
		for (unsigned i = 1; i < Tile; i++)
			for (unsigned k = 0; k < i; k++)
				row[i][me] -= t[i][k] * row[k][me];
	else /* a row of L */
		for (unsigned i = 0; i < Tile; i++) {
			for (unsigned k = 0; k < i; k++)
				column[me][i] -= column[me][k] * t[k][i];
			column[me][i] /= t[i][i];
		}
	__syncthreads();
	if (threadIdx.x < Tile)
		for (unsigned i = 1; i < Tile; i++)
			A[(at + i) * n + next + me] = row[i][me];
	else
		for (unsigned i = 0; i < Tile; i++)
			A[(next + i) * n + at + me] = column[i][me];
}

/* The tiles right of and below those: a block for each tile, a thread for each element. */
extern "C" __global__ void ludInternal(float *A, unsigned n, unsigned at)
{
	__shared__ float l[Tile][Tile], u[Tile][Tile];
	const unsigned x = threadIdx.x, y = threadIdx.y;
	const unsigned row = at + (blockIdx.y + 1) * Tile + y, column = at + (blockIdx.x + 1) * Tile + x;
	float sum = 0;

	l[y][x] = A[row * n + at + x];
	u[y][x] = A[(at + y) * n + column];
	__syncthreads();
	for (unsigned k = 0; k < Tile; k++)
		sum += l[y][k] * u[k][x];
	A[row * n + column] -= sum;
}
