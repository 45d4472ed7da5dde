/* Program images: how long one is, and what to take of a fat binary. */
#ifndef PEGASUS_IMAGE_H
#define PEGASUS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

#define IMAGE_MOST (UINT64_C(1) << 31)

/* What our linker makes: objects of PTX text, each a linked_object with name and text behind it, without padding. */
#define LINKED_MAGIC "\177PTXLINK"
enum { LINKED_MAGIC_BYTES = 8 };
enum { LINKED_TO_LOAD, LINKED_TO_COMPILE, LINKED_TO_LINK }; /* to do with it; the latter two only to see whether it can be done */

struct linked_header {
	char magic[LINKED_MAGIC_BYTES] __attribute__((nonstring));
	uint64_t bytes; /* of the whole */
	uint32_t objects, purpose;
};
_Static_assert(sizeof(struct linked_header) == 24, "linked image");

struct linked_object {
	uint64_t nameBytes, textBytes;
};

struct image {
	const void *bytes;
	uint64_t length;
	void *owned; /* to be freed with image_drop; NULL if bytes are the program's */
	bool fat;    /* found in a fat binary */
};

/*
 * What to load of the image at a bare pointer: PTX text or an ELF as it is, of a
 * fat binary the best for a device of the given capability (10 * major +
 * minor): machine code for it if it takes that, else PTX; of a wrapper without that the linked PTX of what went into it. The lengths are found as the format says, reading no further.
 */
CUresult image_choose(const void *pointer, int capability, bool code, struct image *image);
/* What a fat binary has, of which this thread was told CUDA_ERROR_NO_BINARY_FOR_GPU last, and what is missing. */
const char *image_refusal(void);
/* Makes the bytes ours, if they are the program's. */
CUresult image_keep(struct image *image);
void image_drop(struct image *image);
bool image_is_linked(const struct image *image);
bool image_is_elf(const struct image *image);
/* A file's bytes, to be freed, with a NUL behind them, since it may be text. */
CUresult image_read_file(const char *name, char **text, size_t *bytes);

#endif
