/* The host's description of a loaded module, validated and in private memory. */
#ifndef PEGASUS_IMAGE_LAYOUT_H
#define PEGASUS_IMAGE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

struct layout_param {
	uint32_t offset, size;
};

/* Wire format. */
struct layout_function {
	uint32_t name, paramBytes, paramCount, paramFirst; /* name: offset in strings */
	int32_t maxThreads, staticShared, constBytes, localBytes, registers, ptxVersion, binaryVersion, maxDynamicShared;
};

/* Wire format: further constraints on launches. */
struct layout_limits {
	int32_t refusal;     /* error of every launch, LAYOUT_TRY_FIRST, or 0 */
	int32_t required[3]; /* the only permitted block shape, or zeros */
};

/* The device decides at the first launch. */
enum { LAYOUT_TRY_FIRST = -1 };

enum layout_kind { LAYOUT_MEMORY, LAYOUT_TEXTURE, LAYOUT_SAMPLER, LAYOUT_SURFACE };

struct layout_global {
	uint32_t name, kind;
	uint64_t address, size;
};

struct layout {
	void *memory; /* owns all arrays below */
	const struct layout_function *functions;
	uint32_t functionCount;
	const struct layout_param *params;
	uint32_t paramCount;
	const struct layout_global *globals;
	uint32_t globalCount;
	const char *strings;
	const struct layout_limits *limits; /* by function index; NULL if the host is an older release that sends none */
	uint32_t *hash; /* by name: function index + 1 */
	uint32_t hashSize;
};

/* Parses a copy of bytes; false if they are malformed or memory is exhausted. */
bool layout_parse(const uint8_t *bytes, uint64_t length, struct layout *l);
void layout_free(struct layout *l);

/* Return the index of a function, or of a variable of a kind, by name; -1 if it does not exist. */
int64_t layout_find_function(const struct layout *l, const char *name);
int64_t layout_find_global(const struct layout *l, enum layout_kind kind, const char *name);

#endif
