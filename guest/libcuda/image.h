/* Program images: how long one is, and the PTX in a fat binary. */
#ifndef PEGASUS_IMAGE_H
#define PEGASUS_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

struct image {
	const void *bytes;
	uint64_t length;
	void *owned; /* to be freed with image_drop; NULL if bytes are the program's */
};

/*
 * What to load of the image at a bare pointer: PTX text or an ELF as it is, of a
 * fat binary the best PTX for a device of the given capability (10 * major +
 * minor). The lengths are found as the format says, reading no further.
 */
CUresult image_choose(const void *pointer, int capability, struct image *image);
void image_drop(struct image *image);

#endif
