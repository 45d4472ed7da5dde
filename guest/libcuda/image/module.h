/* Modules: loading an image in a context, and the contents of the module. */
#ifndef PEGASUS_IMAGE_MODULE_H
#define PEGASUS_IMAGE_MODULE_H

#include "image/function.h"
#include "image/image.h"
#include "object/object.h"

struct module {
	struct object object;
	uint64_t context; /* handle */
	uint32_t wireContext, wire;
	uint64_t library; /* handle of the library that this is a module of, or 0 */
	bool loaded;
	struct image later; /* image of a lazily loaded module, until its first use */
	struct layout layout;
	_Atomic uint64_t *functions; /* handles issued so far, by index in the layout */
};

extern struct table modules;

struct jit;

/*
 * Loads an image; library 0: as the program's own module. Neither loading nor unloading prints pending kernel output,
 * which may take long, so the caller may hold a lock.
 */
CUresult module_load(struct context *c, const struct image *image, struct jit *jit, uint64_t library, uint64_t *module);
/* Fetches the layout of an image from the host without loading it, and reports to jit. */
CUresult module_inspect(const struct image *image, struct jit *jit, struct layout *layout);
CUresult module_unload(uint64_t module);

/* Makes the host check an image as if for loading, and reports to jit. */
CUresult module_check(const struct context *c, const struct image *image, struct jit *jit);
/* Logs the reason why an image is rejected before it is sent, and returns the error. */
CUresult module_refuse(const struct jit *jit, CUresult why);

/* Looks up a variable of a module; returns a copy, since the module may be unloaded concurrently. */
CUresult module_find_global(CUmodule handle, enum layout_kind kind, const char *name, struct layout_global *global,
	struct module **module);

/* Drops modules and functions of a context that is destroyed. */
void module_context_gone(uint64_t context);

#endif
