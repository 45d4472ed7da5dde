#ifndef PEGASUS_MD2_H
#define PEGASUS_MD2_H

#include <stddef.h>
#include <stdint.h>

enum { MD2_BYTES = 16 };

/* State of a message digest by RFC 1319. All zeros is the initial state. */
struct md2 {
	uint8_t state[48], checksum[MD2_BYTES], block[MD2_BYTES];
	size_t have; /* bytes of block */
};

void md2_add(struct md2 *m, const void *bytes, size_t count);
void md2_end(struct md2 *m, uint8_t digest[MD2_BYTES]);

#endif
