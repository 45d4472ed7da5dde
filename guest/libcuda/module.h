#ifndef PEGASUS_MODULE_H
#define PEGASUS_MODULE_H

#include "image.h"
#include "layout.h"
#include "object.h"

struct module {
	struct object object;
	uint64_t context; /* handle */
	uint32_t wireContext, wire;
	uint64_t library; /* handle of the library that it is a module of, or 0 */
	bool loaded;
	struct image later; /* what it is to be loaded from, once something of it is needed */
	struct layout layout;
	_Atomic uint64_t *functions; /* handles given out so far, by index in the layout */
};

enum { OLD_PARAMS_MOST = 4096 };

/* What the old launch interface builds up piece by piece. */
struct old_launch {
	uint32_t block[3], sharedBytes, paramBytes;
	uint8_t params[OLD_PARAMS_MOST];
};

/* What can be set of a function that nothing here follows: programs find what they set. */
enum hint { HINT_CARVEOUT, HINT_NON_PORTABLE_CLUSTERS, HINT_CLUSTER_POLICY, HINTS, NO_HINT = HINTS };

struct function {
	struct object object;
	uint64_t context, module; /* handles */
	uint32_t wireContext;
	int device;
	uint64_t wire;
	const char *name;
	const struct layout_param *params;
	struct layout_function facts;
	struct layout_limits limits;
	_Atomic uint32_t holders; /* threads that launch it or read what it has of its module right now */
	_Atomic bool tried; /* launches need not wait for an answer */
	bool padded; /* not every byte of the parameter block is a parameter's */
	_Atomic int32_t maxDynamicShared, hints[HINTS];
	_Atomic bool dynamicSet, hintSet[HINTS]; /* by cuFuncSetAttribute, whatever is set of its kernel */
	_Atomic(struct old_launch *) old;
};

extern struct table modules, functions;

static inline struct function *function_find(CUfunction f) { return handle_find(&functions, (uint64_t)(uintptr_t)f); }

/*
 * What a function has of its module stays while it is held, and so does the module on the host, since unloading waits: for
 * a launch that is under way. Who holds one waits for nothing but the ring. NULL if there is none of that handle.
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

/* Which of the hints an attribute is, and what that is before it is set. */
enum hint function_hint(CUfunction_attribute attribute);
static inline int32_t function_hint_before(enum hint hint) { return hint == HINT_CARVEOUT ? -1 : 0; }
/* Another attribute by a function's facts and settings. */
CUresult function_attribute(const struct layout_function *facts, CUfunction_attribute attribute, int32_t maxDynamicShared, int *value);
/* Whether an attribute can be set, and to that value. */
CUresult function_check_attribute(const struct layout_function *facts, int device, CUfunction_attribute attribute, int value);

struct jit;

/*
 * Loads an image; library 0: as the program's own module. Neither this nor unloading shows what kernels had to print, which
 * may take long: the caller may have a lock.
 */
CUresult module_load(struct context *c, const struct image *image, struct jit *jit, uint64_t library, uint64_t *module);
/* Has the host say what an image offers, and reports to jit. */
CUresult module_inspect(const struct image *image, struct jit *jit, struct layout *layout);
CUresult module_unload(uint64_t module);

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
