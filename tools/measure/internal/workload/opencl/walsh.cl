#define SECTION 2048

kernel void walshGlobal(global const float *in, global float *out, uint quarter, uint n)
{
	for (uint i = get_global_id(0); i < n / 4; i += get_global_size(0)) {
		const uint low = i & (quarter - 1);
		const uint at = (i - low) * 4 + low;
		const float a = in[at], b = in[at + quarter];
		const float c = in[at + 2 * quarter], d = in[at + 3 * quarter];
		const float ac = a + c, bd = b + d, a_c = a - c, b_d = b - d;
		out[at] = ac + bd;
		out[at + quarter] = ac - bd;
		out[at + 2 * quarter] = a_c + b_d;
		out[at + 3 * quarter] = a_c - b_d;
	}
}

kernel void walshShared(global const float *in, global float *out, uint n)
{
	local float s[SECTION];
	const uint count = n < SECTION ? n : SECTION;
	const uint base = get_group_id(0) * count, me = get_local_id(0), threads = get_local_size(0);

	for (uint i = me; i < count; i += threads)
		s[i] = in[base + i];
	for (uint distance = count / 2; distance > 0; distance /= 2) {
		barrier(CLK_LOCAL_MEM_FENCE);
		for (uint i = me; i < count / 2; i += threads) {
			const uint low = i & (distance - 1);
			const uint at = (i - low) * 2 + low;
			const float a = s[at], b = s[at + distance];
			s[at] = a + b;
			s[at + distance] = a - b;
		}
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	for (uint i = me; i < count; i += threads)
		out[base + i] = s[i];
}
