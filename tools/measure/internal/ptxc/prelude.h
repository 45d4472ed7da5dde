/* A PTX module in C, as package ptxc translates it. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "peer.h"

/* Nothing is to be done before the first launch. */
void peer_start(void *memory, size_t size, int argc, char **argv)
{
	(void)memory, (void)size, (void)argc, (void)argv;
}

/* The special registers, as parameters of the functions that use them. */
#define SPECIAL_REGISTERS                                                          \
	uint32_t tid_x, uint32_t tid_y, uint32_t tid_z,                            \
	uint32_t ntid_x, uint32_t ntid_y, uint32_t ntid_z,                         \
	uint32_t ctaid_x, uint32_t ctaid_y, uint32_t ctaid_z,                      \
	uint32_t nctaid_x, uint32_t nctaid_y, uint32_t nctaid_z
#define SPECIALS x, y, z, nx, ny, nz, bx, by, bz, nbx, nby, nbz

#define DIMENSIONS                                                                 \
	const uint32_t nx = l->block[0], ny = l->block[1], nz = l->block[2];       \
	const uint32_t nbx = l->grid[0], nby = l->grid[1], nbz = l->grid[2];
#define EACH_BLOCK                                                                 \
	for (uint32_t bz = 0; bz < nbz; bz++)                                      \
		for (uint32_t by = 0; by < nby; by++)                              \
			for (uint32_t bx = 0; bx < nbx; bx++)
#define EACH_THREAD                                                                \
	for (uint32_t z = 0; z < nz; z++)                                          \
		for (uint32_t y = 0; y < ny; y++)                                  \
			for (uint32_t x = 0; x < nx; x++)

/* A kernel without barriers: each thread runs to its end. */
#define LAUNCH(name)                                                               \
	static void launch_##name(const struct launch *l)                          \
	{                                                                          \
		DIMENSIONS                                                         \
		EACH_BLOCK                                                         \
			EACH_THREAD {                                              \
				struct thread_##name t = { 0 };                    \
				step_##name(&t, l->params, SPECIALS);              \
			}                                                          \
	}

/* A kernel with barriers: each thread runs to the next one, until all have ended. */
#define LAUNCH_IN_STEPS(name)                                                      \
	static void launch_##name(const struct launch *l)                          \
	{                                                                          \
		static struct thread_##name threads[1024];                         \
		DIMENSIONS                                                         \
		EACH_BLOCK {                                                       \
			for (uint32_t i = 0; i < nx * ny * nz; i++)                \
				threads[i].at = 0;                                 \
			for (int more = 1; more;) {                                \
				struct thread_##name *t = threads;                 \
				more = 0;                                          \
				EACH_THREAD {                                      \
					if (t->at >= 0)                            \
						step_##name(t, l->params, SPECIALS); \
					more |= t++->at >= 0;                      \
				}                                                  \
			}                                                          \
		}                                                                  \
	}

static inline float as_f32(uint32_t v) { float f; memcpy(&f, &v, sizeof f); return f; }
static inline double as_f64(uint64_t v) { double f; memcpy(&f, &v, sizeof f); return f; }
static inline uint32_t bits32(float v) { uint32_t u; memcpy(&u, &v, sizeof u); return u; }
static inline uint64_t bits64(double v) { uint64_t u; memcpy(&u, &v, sizeof u); return u; }

/* A subnormal number becomes zero. */
static inline float flush(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }

/* The bits of v from first on. */
static inline uint64_t bit_field(uint64_t v, uint32_t first, uint32_t count, unsigned width)
{
	first &= 255;
	count &= 255;
	if (first >= width)
		return 0;
	return v >> first & (count < 64 ? ((uint64_t)1 << count) - 1 : ~(uint64_t)0);
}
