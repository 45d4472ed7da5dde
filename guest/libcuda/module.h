#ifndef PEGASUS_MODULE_H
#define PEGASUS_MODULE_H

#include "layout.h"
#include "object.h"

struct module {
	struct object object;
	uint64_t context; /* handle */
	uint32_t wireContext, wire;
	struct layout layout;
	_Atomic uint64_t *functions; /* handles given out so far, by index in the layout */
};

enum { PARAMS_MOST = 4096 };

/* What the old launch interface builds up piece by piece. */
struct old_launch {
	uint32_t block[3], sharedBytes, paramBytes;
	uint8_t params[PARAMS_MOST];
};

struct function {
	struct object object;
	uint64_t context, module; /* handles */
	uint32_t wireContext;
	int device;
	uint64_t wire;
	const char *name;
	const struct layout_param *params;
	struct layout_function facts;
	_Atomic uint32_t holders; /* threads that read what it has of its module right now */
	bool padded; /* not every byte of the parameter block is a parameter's */
	_Atomic int32_t maxDynamicShared, carveout;
	_Atomic(struct old_launch *) old;
};

extern struct table modules, functions;

static inline struct function *function_find(CUfunction f) { return handle_find(&functions, (uint64_t)(uintptr_t)f); }

/*
 * What a function has of its module stays while it is held, since the module's unloading waits for that: so a function is
 * held briefly, and by nobody who waits. NULL if there is none of that handle.
 */
static inline struct function *function_hold(CUfunction handle)
{
	struct function *f = function_find(handle);
	if (UNLIKELY(!f))
		return NULL;
	atomic_fetch_add(&f->holders, 1);
	if (LIKELY(atomic_load(&f->object.handle) == (uint64_t)(uintptr_t)handle))
		return f;
	atomic_fetch_sub(&f->holders, 1);
	return NULL;
}

static inline void function_release(struct function *f) { atomic_fetch_sub_explicit(&f->holders, 1, memory_order_release); }

struct image;
struct jit;

/* Has the host look at an image as if it were to be loaded, and reports to jit. */
CUresult module_check(const struct context *c, const struct image *image, struct jit *jit);
/* Says in the program's log why an image does not even travel, and returns that. */
CUresult module_refuse(const struct jit *jit, CUresult why);

/* A variable of a module; copied out, since the module may be unloaded meanwhile. */
CUresult module_find_global(CUmodule handle, enum layout_kind kind, const char *name, struct layout_global *global,
	struct module **module);

/* A module ends: its references do. */
void reference_module_gone(uint64_t module);

/* A context ends: its modules and functions do. */
void module_context_gone(uint64_t context);

#endif
