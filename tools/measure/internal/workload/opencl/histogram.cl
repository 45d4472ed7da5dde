#define BINS 256

kernel void histogram(global const uint *words, global uint *bins, uint n)
{
	local uint counts[BINS];

	for (uint i = get_local_id(0); i < BINS; i += get_local_size(0))
		counts[i] = 0;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (uint i = get_global_id(0); i < n; i += get_global_size(0)) {
		const uint word = words[i];
		atomic_inc(&counts[word & 255]);
		atomic_inc(&counts[word >> 8 & 255]);
		atomic_inc(&counts[word >> 16 & 255]);
		atomic_inc(&counts[word >> 24]);
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	for (uint i = get_local_id(0); i < BINS; i += get_local_size(0))
		atomic_add(&bins[i], counts[i]);
}
