#define TILE 256

kernel void nbody(global const float4 *from, global float4 *to, global float4 *velocity, float seconds, uint n)
{
	local float4 tile[TILE];
	const uint me = get_global_id(0);
	const float4 b = from[me];
	float ax = 0, ay = 0, az = 0;

	for (uint first = 0; first < n; first += TILE) {
		tile[get_local_id(0)] = from[first + get_local_id(0)];
		barrier(CLK_LOCAL_MEM_FENCE);
		for (uint i = 0; i < TILE; i++) {
			const float4 o = tile[i];
			const float dx = o.x - b.x, dy = o.y - b.y, dz = o.z - b.z;
			const float square = dx * dx + dy * dy + dz * dz + 1e-3f;
			const float inverse = native_rsqrt(square);
			const float pull = o.w * inverse * inverse * inverse;
			ax += pull * dx;
			ay += pull * dy;
			az += pull * dz;
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	float4 v = velocity[me];
	v.x += ax * seconds;
	v.y += ay * seconds;
	v.z += az * seconds;
	velocity[me] = v;
	to[me] = (float4)(b.x + v.x * seconds, b.y + v.y * seconds, b.z + v.z * seconds, b.w);
}
