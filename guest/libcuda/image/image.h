/* Program images: their lengths, and selection within fat binaries. */
#ifndef PEGASUS_IMAGE_IMAGE_H
#define PEGASUS_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

#define IMAGE_MOST (UINT64_C(1) << 31)

/*
 * Output of the library's linker: objects of PTX text, each a linked_object followed by name and text, without padding.
 */
#define LINKED_MAGIC "\177PTXLINK"
enum { LINKED_MAGIC_BYTES = 8 };
enum { LINKED_TO_LOAD, LINKED_TO_COMPILE, LINKED_TO_LINK }; /* purpose; the latter two only check the step */

struct linked_header {
	char magic[LINKED_MAGIC_BYTES] __attribute__((nonstring));
	uint64_t bytes; /* of the whole image */
	uint32_t objects, purpose;
};
_Static_assert(sizeof(struct linked_header) == 24, "linked image");

struct linked_object {
	uint64_t nameBytes, textBytes;
};

struct image {
	const void *bytes;
	uint64_t length;
	void *owned; /* freed by image_drop; NULL if the program owns bytes */
	bool fat;    /* taken from a fat binary */
};

/*
 * Chooses the image to load at a bare pointer: PTX text or an ELF file itself; of a fat binary the best member for a
 * device of the given capability (10 * major + minor), that is machine code if code is set, else PTX; of a wrapper
 * without a suitable member the linked PTX of its inputs. Determines lengths from the format and reads no further.
 */
CUresult image_choose(const void *pointer, int capability, bool code, struct image *image);
/* As image_choose, and reads no further than the given bytes. An image that claims more is CUDA_ERROR_INVALID_IMAGE. */
CUresult image_choose_within(const void *bytes, uint64_t length, int capability, bool code, struct image *image);

/* The contents of a file, freed by the caller. A NUL follows the bytes, since they may be text. */
struct image_file {
	char *bytes;
	size_t length;
};

/* Reads a file. The bytes may be allocated in the case of an error, too. */
CUresult image_read_file(const char *name, struct image_file *file);
/* As image_choose_within, of a file. */
CUresult image_choose_file(const struct image_file *file, int capability, bool code, struct image *image);
/*
 * Describes the contents of the fat binary that this thread's last CUDA_ERROR_NO_BINARY_FOR_GPU was about, and the
 * missing member.
 */
const char *image_refusal(void);
/* Sets that description, for an image that is rejected without a look at its contents. */
void image_refuse(const char *why);
/* Replaces the program's bytes by a copy, unless *image owns its bytes already. */
CUresult image_keep(struct image *image);
void image_drop(struct image *image);
bool image_is_linked(const struct image *image);
bool image_is_elf(const struct image *image);

#endif
