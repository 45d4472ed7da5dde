/* Functions of modules: their data from the layout, and the settings that a program can change. */
#ifndef PEGASUS_IMAGE_FUNCTION_H
#define PEGASUS_IMAGE_FUNCTION_H

#include "image/layout.h"
#include "object/object.h"

enum { OLD_PARAMS_MOST = 4096 };

/* Launch parameters that the old launch interface sets one by one. */
struct old_launch {
	uint32_t block[3], sharedBytes, paramBytes;
	uint8_t params[OLD_PARAMS_MOST];
};

/* Function attributes without effect here; programs read back the value that they set. */
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
	_Atomic uint32_t holders; /* threads that are launching it or reading its data in the module */
	_Atomic bool tried; /* launches need not wait for a reply */
	bool padded; /* the parameter block has bytes that belong to no parameter */
	_Atomic int32_t maxDynamicShared, hints[HINTS];
	_Atomic bool dynamicSet, hintSet[HINTS]; /* set by cuFuncSetAttribute; takes precedence over the kernel's setting */
	_Atomic(struct old_launch *) old;
};

extern struct table functions;

static inline struct function *function_find(CUfunction f) { return handle_find(&functions, (uint64_t)(uintptr_t)f); }

/*
 * Holds a function, or returns NULL if the handle is not valid. While a function is held, its data in the module stay,
 * and so does the module on the host, since unloading waits for holders: launches in progress. A holder must not block
 * on anything but the ring.
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

/* Returns the hint of an attribute, and a hint's value before it is set. */
enum hint function_hint(CUfunction_attribute attribute);
static inline int32_t function_hint_before(enum hint hint) { return hint == HINT_CARVEOUT ? -1 : 0; }
/* Returns any other attribute, from a function's facts and settings. */
CUresult function_attribute(const struct layout_function *facts, CUfunction_attribute attribute, int32_t maxDynamicShared, int *value);
/* Checks that an attribute can be set, and to that value. */
CUresult function_check_attribute(const struct layout_function *facts, int device, CUfunction_attribute attribute, int value);

#endif
