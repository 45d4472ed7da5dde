/* The fast Walsh transform in natural order, of n = 2^k elements. Stages whose
 * partners are far apart go through global memory, four elements at a time; the
 * rest is done for each section of 2048 elements in shared memory. */
#include "device.h"

enum { Section = 2048 };

/* Two stages at once, on elements at a distance of quarter: out may equal in. */
extern "C" __global__ void walshGlobal(const float *in, float *out, unsigned quarter, unsigned n)
{
	for (unsigned i = firstElement(); i < n / 4; i += elementStride()) {
		const unsigned low = i & (quarter - 1);
		const unsigned at = (i - low) * 4 + low;
		const float a = in[at], b = in[at + quarter];
		const float c = in[at + 2 * quarter], d = in[at + 3 * quarter];
		const float ac = a + c, bd = b + d, a_c = a - c, b_d = b - d;
		out[at] = ac + bd;
		out[at + quarter] = ac - bd;
		out[at + 2 * quarter] = a_c + b_d;
		out[at + 3 * quarter] = a_c - b_d;
	}
}

/* All stages of one section, or of the whole vector if it is shorter: a block
 * has one thread for each two elements, at most 1024. */
extern "C" __global__ void walshShared(const float *in, float *out, unsigned n)
{
	__shared__ float s[Section];
	const unsigned count = n < Section ? n : Section;
	const unsigned base = blockIdx.x * count;

	for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
		s[i] = in[base + i];
	for (unsigned half = count / 2; half > 0; half /= 2) {
		__syncthreads();
		for (unsigned i = threadIdx.x; i < count / 2; i += blockDim.x) {
			const unsigned low = i & (half - 1);
			const unsigned at = (i - low) * 2 + low;
			const float a = s[at], b = s[at + half];
			s[at] = a + b;
			s[at + half] = a - b;
		}
	}
	__syncthreads();
	for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
		out[base + i] = s[i];
}
