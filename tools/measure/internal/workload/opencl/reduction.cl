#define THREADS 256

kernel void sum(global const float *in, global float *sums, uint n)
{
	local float s[THREADS];
	const uint me = get_local_id(0);
	float mine = 0;

	for (uint i = get_global_id(0); i < n; i += get_global_size(0))
		mine += in[i];
	s[me] = mine;
	for (uint distance = THREADS / 2; distance > 0; distance /= 2) {
		barrier(CLK_LOCAL_MEM_FENCE);
		if (me < distance)
			s[me] += s[me + distance];
	}
	if (me == 0)
		sums[get_group_id(0)] = s[0];
}
