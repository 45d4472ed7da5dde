/*
 * Declarations that CUDA C needs beyond clang itself, in place of NVIDIA's headers: the keywords, the built-in index
 * variables and the few functions that the kernels here use. Only for kernels compiled with -nocudainc -nocudalib.
 */
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

/* A variable such as threadIdx: its members are read from special registers. */
#define INDEX(type, register)                                                  \
	struct type {                                                          \
		__declspec(property(get = getx)) unsigned x;                   \
		__declspec(property(get = gety)) unsigned y;                   \
		__declspec(property(get = getz)) unsigned z;                   \
		__device__ static unsigned getx() { return __nvvm_read_ptx_sreg_##register##_x(); } \
		__device__ static unsigned gety() { return __nvvm_read_ptx_sreg_##register##_y(); } \
		__device__ static unsigned getz() { return __nvvm_read_ptx_sreg_##register##_z(); } \
	}
extern __device__ const INDEX(ThreadIdx, tid) threadIdx;
extern __device__ const INDEX(BlockIdx, ctaid) blockIdx;
extern __device__ const INDEX(BlockDim, ntid) blockDim;
extern __device__ const INDEX(GridDim, nctaid) gridDim;
#undef INDEX

/* The first element of this thread and the distance to its next, when a grid of
 * any size walks over a vector of any length. */
static __device__ inline unsigned firstElement() { return blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ inline unsigned elementStride() { return gridDim.x * blockDim.x; }

/* The special function unit's exponential and logarithm, as with -use_fast_math. */
static __device__ inline float fastExp(float x) { return __nvvm_ex2_approx_ftz_f(x * 1.44269504f); }
static __device__ inline float fastLog(float x) { return __nvvm_lg2_approx_ftz_f(x) * 0.69314718f; }
static __device__ inline float fastSin(float x) { return __nvvm_sin_approx_ftz_f(x); }
static __device__ inline float fastCos(float x) { return __nvvm_cos_approx_ftz_f(x); }
static __device__ inline float roundDown(float x) { return __nvvm_floor_f(x); }
static __device__ inline float squareRoot(float x) { return __nvvm_sqrt_rn_f(x); }
static __device__ inline float inverseRoot(float x) { return __nvvm_rsqrt_approx_ftz_f(x); }

static __device__ inline void atomicAdd(unsigned *p, unsigned v)
{
	__nvvm_atom_add_gen_i((int *)p, (int)v);
}
