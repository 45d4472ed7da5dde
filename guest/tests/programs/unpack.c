/*
 * Decompresses Zstandard frames: unpack PLAIN PACKED... checks that each PACKED gives PLAIN, and that damaged frames
 * are either rejected or decompressed within their bounds. Buffers are as long as the frame, so that an access beyond
 * its end is detected.
 */
#include <stdint.h>

#include "check.h"
#include "image/zstd.h"

static uint8_t *contents(const char *name, size_t *bytes)
{
	FILE *f = fopen(name, "rb");
	CLAIM(f && fseek(f, 0, SEEK_END) == 0);
	*bytes = (size_t)ftell(f);
	rewind(f);
	uint8_t *b = malloc(*bytes + 1);
	CLAIM(b && fread(b, 1, *bytes, f) == *bytes);
	fclose(f);
	return b;
}

static uint32_t draw(void)
{
	static uint32_t seed = 1;
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static void damage(const uint8_t *packed, size_t bytes, uint8_t *out, size_t plainBytes)
{
	for (int i = 0; i < 100; i++) {
		size_t n = i % 3 == 0 ? draw() % bytes : bytes;
		uint8_t *bad = malloc(n + !n);
		memcpy(bad, packed, n);
		for (int k = 0; k < 3 && n > 0; k++)
			bad[draw() % n] ^= (uint8_t)(1u << draw() % 8);
		zstd_expand(bad, n, out, plainBytes);
		free(bad);
	}
}

int main(int argc, char **argv)
{
	size_t plainBytes, bytes;
	CLAIM(argc > 2);
	uint8_t *plain = contents(argv[1], &plainBytes), *out = malloc(plainBytes + 1);
	for (int i = 2; i < argc; i++) {
		uint8_t *packed = contents(argv[i], &bytes);
		CLAIM(zstd_expand(packed, bytes, out, plainBytes) && memcmp(out, plain, plainBytes) == 0);
		CLAIM(!zstd_expand(packed, bytes, out, plainBytes - 1) && !zstd_expand(packed, bytes, out, plainBytes + 1));
		damage(packed, bytes, out, plainBytes);
		free(packed);
	}
	free(plain);
	free(out);
	puts("unpack: fine");
	return 0;
}
