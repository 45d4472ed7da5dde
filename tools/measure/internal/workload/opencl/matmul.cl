#define TILE 16

kernel void matmul(global const float *A, global const float *B, global float *C, uint n)
{
	local float a[TILE][TILE], b[TILE][TILE];
	const uint x = get_local_id(0), y = get_local_id(1);
	const uint row = get_group_id(1) * TILE + y, column = get_group_id(0) * TILE + x;
	float sum = 0;

	for (uint k = 0; k < n; k += TILE) {
		a[y][x] = A[row * n + k + x];
		b[y][x] = B[(k + y) * n + column];
		barrier(CLK_LOCAL_MEM_FENCE);
		for (uint i = 0; i < TILE; i++)
			sum = fma(a[y][i], b[i][x], sum);
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	C[row * n + column] = sum;
}
