/* Decompression of Zstandard frames. */
#ifndef PEGASUS_IMAGE_ZSTD_H
#define PEGASUS_IMAGE_ZSTD_H

#include <stdbool.h>
#include <stdint.h>

/* Decompresses one Zstandard frame of exactly outBytes; false if it is malformed or of another size. */
bool zstd_expand(const uint8_t *in, uint64_t inBytes, uint8_t *out, uint64_t outBytes);

#endif
