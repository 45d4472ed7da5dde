/*
 * Modules: an image is sent through the arena, and the reply is the layout of its whole contents, so that later lookups
 * need no request.
 */
#include "image/module.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/device.h"
#include "core/futex.h"
#include "core/lifecycle.h"
#include "core/range.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "image/image.h"
#include "image/jit.h"
#include "object/context.h"

#define LOG_ROOM 8192
enum { HOLD_YIELDS = 1000, HOLD_TRIES = 11000 }; /* attempts of a module's end to wait for threads that launch its functions */
#define LAYOUT_ROOM 65536 /* in addition to the image's size; enough unless it has many tiny kernels */
#define LAYOUT_MOST (64 << 20)

struct table modules = HANDLE_TABLE(HANDLE_MODULE, struct module, 60000);
struct table functions = HANDLE_TABLE(HANDLE_FUNCTION, struct function, (1u << HANDLE_INDEX_BITS) - 1);

static pthread_mutex_t functionLock = PTHREAD_MUTEX_INITIALIZER; /* guards the contents of modules: another thread may unload one */

/* --- loading --- */

/* Adds the module's variables to the table of ranges, so that copies to them pass its checks. */
static void add_globals(struct module *m)
{
	for (uint32_t i = 0; i < m->layout.globalCount; i++) {
		const struct layout_global *g = &m->layout.globals[i];
		if (g->kind != LAYOUT_MEMORY)
			continue;
		struct range range = {
			.base = g->address, .size = g->size, .kind = RANGE_GLOBAL, .context = m->context, .owner = m->object.id,
		};
		range_add_fresh(&range);
	}
}

static void post_unload(const struct module *m)
{
	struct module_unload_args args = {.module = m->wire};
	struct packet p = {.op = OP_MODULE_UNLOAD, .context = m->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	ring_post(&p);
}

static const char *reason_of(CUresult why)
{
	switch (why) {
	case CUDA_ERROR_NO_BINARY_FOR_GPU: return image_refusal();
	case CUDA_ERROR_NOT_SUPPORTED: return "the image is compressed in a way that is not supported";
	case CUDA_ERROR_OUT_OF_MEMORY: return "no memory for the image";
	case CUDA_ERROR_INVALID_IMAGE: return "the image is damaged, or neither PTX text nor of a known format";
	default: return NULL; /* of the context or the connection */
	}
}

/* Logs the reason why an image is rejected before it is sent. */
CUresult module_refuse(const struct jit *jit, CUresult why)
{
	const char *text = reason_of(why);
	if (text)
		log_at(LOG_ERROR, "module not loaded (%d): %s", (int)why, text);
	jit_report(jit, text ? text : "", text ? strlen(text) : 0, why, 0);
	return why;
}

/* Arguments common to both operations on images, which begin with the module or the device. */
#define SAME(field) \
	_Static_assert(offsetof(struct module_load_args, field) == offsetof(struct module_inspect_args, field), #field)
SAME(imageOffset);
SAME(imageLength);
SAME(layoutOffset);
SAME(layoutCapacity);
SAME(logOffset);
SAME(logCapacity);
_Static_assert(sizeof(struct module_load_args) == sizeof(struct module_inspect_args), "arguments");
_Static_assert(sizeof(struct module_load_result) == sizeof(struct module_inspect_result), "results");

/* One attempt with *room bytes for the layout: if the host needs more, sets *room to that size and reports nothing. */
static CUresult exchange_in(uint64_t *room, uint32_t op, uint32_t context, uint64_t about, const struct image *image, struct jit *jit,
	struct layout *layout, bool *sound)
{
	int64_t began = clock_ns(CLOCK_MONOTONIC);
	uint64_t layoutAt = (image->length + 63) & ~UINT64_C(63), layoutRoom = *room;
	uint64_t logAt = layoutAt + ((layoutRoom + 63) & ~UINT64_C(63));
	struct staging block;
	CUresult r = arena_borrow(logAt + LOG_ROOM, &block);
	if (r != CUDA_SUCCESS)
		return module_refuse(jit, r);
	uint64_t offset = block.offset;
	memcpy(arena_at(offset), image->bytes, image->length);
	struct module_load_args args = {
		.module = about, .imageOffset = offset, .imageLength = image->length,
		.layoutOffset = offset + layoutAt, .layoutCapacity = layoutRoom,
		.logOffset = offset + logAt, .logCapacity = LOG_ROOM,
	};
	struct module_load_result answer = {0};
	struct packet p = {.op = op, .context = context, .fixed = &args, .fixedBytes = sizeof args};
	struct call call = {0};
	uint32_t got = 0;
	r = call_start(&call, &p);
	if (r == CUDA_SUCCESS)
		r = call_finish(&call, &answer, sizeof answer, &got);
	if (got != sizeof answer)
		answer = (struct module_load_result){0};
	if (r == CUDA_ERROR_INVALID_VALUE && answer.layoutLength > layoutRoom && answer.layoutLength <= LAYOUT_MOST) {
		*room = answer.layoutLength;
		arena_return(&block);
		return r;
	}
	char log[LOG_ROOM];
	uint64_t logBytes = answer.logLength < LOG_ROOM ? answer.logLength : LOG_ROOM;
	memcpy(log, arena_at(offset + logAt), logBytes);
	if (r != CUDA_SUCCESS && logBytes > 0)
		log_at(LOG_ERROR, "module not loaded (%d): %.*s", (int)r, (int)logBytes, log);
	jit_report(jit, log, logBytes, r, (float)(clock_ns(CLOCK_MONOTONIC) - began) / 1e6f);
	*sound = r == CUDA_SUCCESS && answer.layoutLength <= layoutRoom &&
		layout_parse(arena_at(offset + layoutAt), answer.layoutLength, layout);
	arena_return(&block);
	return r;
}

/*
 * Sends the image and reads the reply, all through one allocation of the arena: image, layout, log. On success, sound
 * reports whether the reply is valid.
 */
static CUresult exchange(uint32_t op, uint32_t context, uint64_t about, const struct image *image, struct jit *jit,
	struct layout *layout, bool *sound)
{
	uint64_t usual = ((image->length + 63) & ~UINT64_C(63)) + LAYOUT_ROOM, room = usual;
	CUresult r = exchange_in(&room, op, context, about, image, jit, layout, sound);
	return room == usual ? r : exchange_in(&room, op, context, about, image, jit, layout, sound);
}

CUresult module_inspect(const struct image *image, struct jit *jit, struct layout *layout)
{
	bool sound;
	CUresult r = exchange(OP_MODULE_INSPECT, 0, 0, image, jit, layout, &sound);
	return r != CUDA_SUCCESS || sound ? r : CUDA_ERROR_UNKNOWN;
}

/* Returns a new module that is not published and does not exist on the host. */
static struct module *module_new(const struct context *c)
{
	struct module *m = handle_new(&modules);
	if (!m)
		return NULL;
	m->context = c->object.id;
	m->wireContext = c->wire;
	m->wire = (uint32_t)m->object.id;
	m->library = 0;
	m->loaded = false;
	m->later = (struct image){0};
	m->layout = (struct layout){0};
	m->functions = NULL;
	return m;
}

/* Makes the host load the module. */
static CUresult bring(struct module *m, const struct image *image, struct jit *jit)
{
	bool sound;
	CUresult r = exchange(OP_MODULE_LOAD, m->wireContext, m->wire, image, jit, &m->layout, &sound);
	if (r != CUDA_SUCCESS)
		return r;
	m->functions = sound ? calloc(m->layout.functionCount + 1, sizeof *m->functions) : NULL;
	m->loaded = m->functions != NULL;
	if (m->loaded)
		return CUDA_SUCCESS;
	layout_free(&m->layout);
	m->layout = (struct layout){0};
	post_unload(m);
	return sound ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

static CUresult exchange_new(const struct context *c, const struct image *image, struct jit *jit, struct module **out)
{
	struct module *m = *out = module_new(c);
	if (!m)
		return module_refuse(jit, CUDA_ERROR_OUT_OF_MEMORY);
	CUresult r = bring(m, image, jit);
	if (r != CUDA_SUCCESS)
		handle_free(&modules, m);
	return r;
}

CUresult module_load(struct context *c, const struct image *image, struct jit *jit, uint64_t library, uint64_t *module)
{
	struct module *m;
	CUresult r = exchange_new(c, image, jit, &m);
	if (r != CUDA_SUCCESS)
		return r;
	m->library = library;
	add_globals(m);
	handle_publish(m);
	*module = m->object.id;
	return CUDA_SUCCESS;
}

static CUresult load_chosen(struct context *c, struct image *image, struct jit *jit, CUmodule *out)
{
	uint64_t module;
	CUresult r = module_load(c, image, jit, 0, &module);
	image_drop(image);
	if (r != CUDA_SUCCESS)
		return r;
	*out = (CUmodule)(uintptr_t)module;
	text_show(c->wire);
	return CUDA_SUCCESS;
}

static CUresult load(const void *pointer, struct jit *jit, CUmodule *out)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !pointer)
		return CUDA_ERROR_INVALID_VALUE;
	struct image image;
	r = image_choose(pointer, device_capability(c->device), device_takes_code(c->device), &image);
	return r == CUDA_SUCCESS ? load_chosen(c, &image, jit, out) : module_refuse(jit, r);
}

CUresult pg_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	struct jit jit;
	CUresult r = jit_read(count, options, values, &jit);
	return r == CUDA_SUCCESS ? load(image, &jit, module) : r;
}

CUresult pg_cuModuleLoadData(CUmodule *module, const void *image)
{
	struct jit jit = {0};
	return load(image, &jit, module);
}

/*
 * Programs register all their fat binaries at start, some of them thousands, and use few: errors in one are reported on
 * its first use, as with libraries.
 */
CUresult pg_cuModuleLoadFatBinary(CUmodule *out, const void *fatbin)
{
	struct context *c;
	struct image image;
	struct jit silent = {0};
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !fatbin)
		return CUDA_ERROR_INVALID_VALUE;
	r = image_choose(fatbin, device_capability(c->device), device_takes_code(c->device), &image);
	if (r != CUDA_SUCCESS)
		return module_refuse(&silent, r);
	if (!image.fat) {
		image_drop(&image);
		return load(fatbin, &silent, out);
	}
	struct module *m = image_keep(&image) == CUDA_SUCCESS ? module_new(c) : NULL;
	if (!m) {
		image_drop(&image);
		return module_refuse(&silent, CUDA_ERROR_OUT_OF_MEMORY);
	}
	m->later = image;
	handle_publish(m);
	*out = HANDLE_OF(CUmodule, m);
	return CUDA_SUCCESS;
}

CUresult pg_cuModuleLoad(CUmodule *module, const char *name)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	struct image_file file;
	struct image image;
	struct jit silent = {0};
	r = image_read_file(name, &file);
	if (r == CUDA_SUCCESS) {
		r = image_choose_file(&file, device_capability(c->device), device_takes_code(c->device), &image);
		r = r == CUDA_SUCCESS ? load_chosen(c, &image, &silent, module) : module_refuse(&silent, r);
	}
	free(file.bytes);
	return r;
}

CUresult pg_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING; /* mode of libraries */
	return CUDA_SUCCESS;
}

/* --- unloading --- */

/*
 * Waits, for a bounded time, until no thread holds a retired function; returns false if one still does. A thread that
 * was ended during a launch may hold it for ever.
 */
static bool let_go(struct function *f)
{
	for (int tries = 0; atomic_load(&f->holders) != 0; tries++) {
		if (tries == HOLD_TRIES)
			return false;
		if (tries < HOLD_YIELDS)
			sched_yield();
		else
			syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return true;
}

/* Retires and frees a function; returns false if a thread still holds its data in the module. */
static bool forget_function(uint64_t handle)
{
	struct function *f = handle_find(&functions, handle);
	if (!f || !handle_retire(f))
		return true;
	if (!let_go(f))
		return false;
	free(atomic_exchange_explicit(&f->old, NULL, memory_order_relaxed));
	handle_free(&functions, f);
	return true;
}

/*
 * Frees a retired module; the caller is the thread that retired it. alone: the module ends before its context, so an
 * unload packet is posted, after all launches that found its functions.
 */
static void dismantle(struct module *m, bool alone)
{
	bool unused = true;
	pthread_mutex_lock(&functionLock);
	for (uint32_t i = 0; i < m->layout.functionCount; i++)
		unused &= forget_function(atomic_load_explicit(&m->functions[i], memory_order_relaxed));
	free(m->functions);
	m->functions = NULL;
	if (unused)
		layout_free(&m->layout);
	pthread_mutex_unlock(&functionLock);
	if (alone && m->loaded)
		post_unload(m);
	image_drop(&m->later);
	lifecycle_hooks.module_ends(m->object.id);
	range_remove_owner(m->object.id);
	handle_free(&modules, m);
}

CUresult module_check(const struct context *c, const struct image *image, struct jit *jit)
{
	struct module *m;
	CUresult r = exchange_new(c, image, jit, &m);
	if (r != CUDA_SUCCESS)
		return r;
	dismantle(m, true);
	return CUDA_SUCCESS;
}

static struct module *module_find(CUmodule handle)
{
	return handle_find(&modules, (uint64_t)(uintptr_t)handle);
}

CUresult module_unload(uint64_t handle)
{
	struct module *m = handle_find(&modules, handle);
	if (!m || !handle_retire(m))
		return CUDA_ERROR_INVALID_HANDLE;
	dismantle(m, true);
	return CUDA_SUCCESS;
}

CUresult pg_cuModuleUnload(CUmodule handle)
{
	struct module *m = module_find(handle);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (m->library)
		return CUDA_ERROR_NOT_PERMITTED;
	uint32_t context = m->wireContext;
	CUresult r = context_error(context); /* as with streams */
	if (r == CUDA_SUCCESS)
		r = module_unload((uint64_t)(uintptr_t)handle);
	return r == CUDA_SUCCESS ? text_shown(context, r) : r;
}

static void forget_of_context(void *object, void *context)
{
	struct module *m = object;
	if (m->context == *(uint64_t *)context && handle_retire(m))
		dismantle(m, false);
}

void module_context_gone(uint64_t context) { handle_each(&modules, forget_of_context, &context); }

/* --- contents of a module --- */

static struct function *make_function(struct module *m, uint32_t index)
{
	struct function *f = handle_new(&functions);
	if (!f)
		return NULL;
	struct context *c = handle_find(&contexts, m->context);
	f->context = m->context;
	f->module = m->object.id;
	f->wireContext = m->wireContext;
	f->device = c ? c->device : 0;
	f->wire = (uint64_t)m->wire << 32 | index;
	f->facts = m->layout.functions[index];
	f->name = m->layout.strings + f->facts.name;
	f->params = m->layout.params + f->facts.paramFirst;
	uint64_t covered = 0;
	for (uint32_t i = 0; i < f->facts.paramCount; i++)
		covered += f->params[i].size;
	f->limits = m->layout.limits ? m->layout.limits[index] : (struct layout_limits){0};
	f->tried = f->limits.refusal != LAYOUT_TRY_FIRST;
	f->padded = covered != f->facts.paramBytes;
	f->maxDynamicShared = f->facts.maxDynamicShared;
	f->dynamicSet = false;
	for (enum hint h = 0; h < HINTS; h++) {
		f->hints[h] = function_hint_before(h);
		f->hintSet[h] = false;
	}
	f->old = NULL;
	handle_publish(f);
	return f;
}

/* Requires the lock. Every function has one handle, created on first use. */
static CUresult give_function(struct module *m, uint32_t index, CUfunction *out)
{
	uint64_t handle = atomic_load_explicit(&m->functions[index], memory_order_relaxed);
	if (handle == 0) {
		struct function *f = make_function(m, index);
		handle = f ? f->object.id : 0;
		atomic_store_explicit(&m->functions[index], handle, memory_order_relaxed);
	}
	*out = (CUfunction)(uintptr_t)handle;
	return handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * Loads a lazily loaded module on first use. Requires the lock: another thread that needs the module would have to wait
 * anyway.
 */
static CUresult load_now(struct module *m)
{
	struct jit silent = {0};
	if (m->loaded)
		return CUDA_SUCCESS;
	CUresult r = bring(m, &m->later, &silent);
	if (r != CUDA_SUCCESS)
		return r;
	image_drop(&m->later);
	add_globals(m);
	return CUDA_SUCCESS;
}

/* Finds a module, loads it if necessary, and locks it against unloading; on failure it is not locked. */
static CUresult lock_module(CUmodule handle, struct module **m)
{
	pthread_mutex_lock(&functionLock);
	*m = module_find(handle);
	CUresult r = *m ? context_error((*m)->wireContext) : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		r = load_now(*m);
	if (r != CUDA_SUCCESS)
		pthread_mutex_unlock(&functionLock);
	return r;
}

CUresult pg_cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	struct module *m;
	CUresult r = lock_module(handle, &m);
	if (r != CUDA_SUCCESS)
		return r;
	int64_t index = layout_find_function(&m->layout, name);
	r = index < 0 ? CUDA_ERROR_NOT_FOUND : give_function(m, (uint32_t)index, out);
	pthread_mutex_unlock(&functionLock);
	return r;
}

CUresult pg_cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	struct module *m;
	CUresult r = lock_module(handle, &m);
	if (r != CUDA_SUCCESS)
		return r;
	*count = m->layout.functionCount;
	pthread_mutex_unlock(&functionLock);
	return CUDA_SUCCESS;
}

CUresult pg_cuModuleEnumerateFunctions(CUfunction *out, unsigned int count, CUmodule handle)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	struct module *m;
	CUresult r = lock_module(handle, &m);
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < count && i < m->layout.functionCount; i++)
		r = give_function(m, i, &out[i]);
	pthread_mutex_unlock(&functionLock);
	return r;
}

CUresult module_find_global(CUmodule handle, enum layout_kind kind, const char *name, struct layout_global *global,
	struct module **module)
{
	CUresult r = lock_module(handle, module);
	if (r != CUDA_SUCCESS)
		return r;
	int64_t index = layout_find_global(&(*module)->layout, kind, name);
	if (index >= 0)
		*global = (*module)->layout.globals[index];
	pthread_mutex_unlock(&functionLock);
	return index < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult pg_cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name)
{
	if (!name || !*name || (!address && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	struct module *m;
	struct layout_global g;
	CUresult r = module_find_global(handle, LAYOUT_MEMORY, name, &g, &m);
	for (int kind = LAYOUT_TEXTURE; r == CUDA_ERROR_NOT_FOUND && kind <= LAYOUT_SURFACE; kind++)
		if (module_find_global(handle, (enum layout_kind)kind, name, &g, &m) == CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_VALUE; /* the variable is a reference, which has no memory */
	if (r != CUDA_SUCCESS)
		return r;
	if (address)
		*address = g.address;
	if (bytes)
		*bytes = g.size;
	return CUDA_SUCCESS;
}
