#include "md2.h"

enum { ROUNDS = 18 };

/* A permutation of all bytes, made of the digits of pi: RFC 1319, 3.2. */
static const uint8_t pi[256] = {
	41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19,
	98, 167, 5, 243, 192, 199, 115, 140, 152, 147, 43, 217, 188, 76, 130, 202,
	30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18,
	190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122,
	169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33,
	128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3,
	255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198,
	79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4, 241,
	69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2,
	27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15,
	85, 71, 163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234, 38,
	44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82,
	106, 220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74,
	120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57,
	242, 239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10,
	49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51, 159, 17, 131, 20,
};

static void one_block(struct md2 *m)
{
	uint8_t l = m->checksum[MD2_BYTES - 1], t = 0;
	for (int i = 0; i < MD2_BYTES; i++) {
		m->state[16 + i] = m->block[i];
		m->state[32 + i] = m->state[i] ^ m->block[i];
		l = m->checksum[i] ^= pi[m->block[i] ^ l];
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < sizeof m->state; i++)
			t = m->state[i] ^= pi[t];
		t += (uint8_t)round;
	}
	m->have = 0;
}

void md2_add(struct md2 *m, const void *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		m->block[m->have++] = ((const uint8_t *)bytes)[i];
		if (m->have == MD2_BYTES)
			one_block(m);
	}
}

void md2_end(struct md2 *m, uint8_t digest[MD2_BYTES])
{
	uint8_t checksum[MD2_BYTES], pad = (uint8_t)(MD2_BYTES - m->have);
	for (int i = 0; i < pad; i++)
		md2_add(m, &pad, 1);
	for (int i = 0; i < MD2_BYTES; i++)
		checksum[i] = m->checksum[i];
	md2_add(m, checksum, sizeof checksum);
	for (int i = 0; i < MD2_BYTES; i++)
		digest[i] = m->state[i];
}
