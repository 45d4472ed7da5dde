#include "image/library.h"

#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/zz_impl.h"
#include "image/image.h"
#include "image/jit.h"
#include "object/context.h"

/* The module of a library in a context, both by handle. Either may have been destroyed. */
struct loaded {
	uint64_t context, module;
	struct loaded *next;
};

struct library {
	struct object object;
	struct image image;
	bool inspected;
	struct layout layout; /* its contents, once inspected */
	uint64_t *kernels;    /* handles issued so far, by index in the layout */
	struct loaded *loaded;
};

/* A program's settings of a kernel, for one device. */
struct settings {
	bool any, dynamicSet, hintSet[HINTS];
	int32_t maxDynamicShared, hints[HINTS];
};

struct kernel {
	struct object object;
	uint64_t library; /* handle */
	uint32_t index;   /* in the library's layout */
	_Atomic uint64_t recent; /* handle of the function last looked up: most programs have one context */
	struct settings settings[DEVICES_MOST];
};

static struct table libraries = HANDLE_TABLE(HANDLE_LIBRARY, struct library, 60000);
static struct table kernels = HANDLE_TABLE(HANDLE_KERNEL, struct kernel, (1u << HANDLE_INDEX_BITS) - 1);

/*
 * Guards libraries and kernels, also while a library is being loaded: another thread that needs it in the same context
 * would have to wait anyway. Modules' locks nest inside it.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult unlock(CUresult r)
{
	pthread_mutex_unlock(&lock);
	return r;
}

/* --- lookup; on failure nothing is locked --- */

static CUresult lock_library(CUlibrary handle, struct library **l)
{
	pthread_mutex_lock(&lock);
	*l = handle_find(&libraries, (uint64_t)(uintptr_t)handle);
	return *l ? CUDA_SUCCESS : unlock(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult lock_kernel(uint64_t handle, struct kernel **k, struct library **l)
{
	pthread_mutex_lock(&lock);
	*k = handle_find(&kernels, handle);
	*l = *k ? handle_find(&libraries, (*k)->library) : NULL;
	return *l ? CUDA_SUCCESS : unlock(CUDA_ERROR_INVALID_HANDLE);
}

/* Fetches the library's layout from the host, once. Requires the lock. */
static CUresult inspect(struct library *l, struct jit *jit)
{
	if (l->inspected)
		return CUDA_SUCCESS;
	CUresult r = module_inspect(&l->image, jit, &l->layout);
	if (r != CUDA_SUCCESS)
		return r;
	l->kernels = calloc(l->layout.functionCount + 1, sizeof *l->kernels);
	if (!l->kernels) {
		layout_free(&l->layout);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	l->inspected = true;
	return CUDA_SUCCESS;
}

/* Looks up a library and inspects it; on success it stays locked. */
static CUresult lock_inspected(CUlibrary handle, struct library **l)
{
	struct jit silent = {0};
	CUresult r = lock_library(handle, l);
	if (r == CUDA_SUCCESS && (r = inspect(*l, &silent)) != CUDA_SUCCESS)
		unlock(r);
	return r;
}

/* --- loading --- */

static CUresult read_options(const CUlibraryOption *options, void **values, unsigned int count, bool *preserved)
{
	(void)values; /* the table of host functions is for unified functions, which do not exist here */
	*preserved = false;
	if (count > 0 && !options)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		if ((unsigned)options[i] >= CU_LIBRARY_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
		*preserved |= options[i] == CU_LIBRARY_BINARY_IS_PRESERVED;
	}
	return CUDA_SUCCESS;
}

/* Returns the lowest compute capability: code for it runs on all devices. */
static int least_capability(void)
{
	int least = device_capability(0);
	for (int i = 1; i < device_count(); i++)
		if (device_capability(i) < least)
			least = device_capability(i);
	return least;
}

/* Machine code suits one device only; with several devices, another one may need the text. */
static bool takes_code(void) { return device_count() == 1 && device_takes_code(0); }

/*
 * Makes a library of an image that was chosen with result r. Errors in PTX text are reported at once, and all errors
 * when the program supplies a log. Fat binaries come from a compiler, and a program may have thousands of them: they
 * are inspected on first use.
 */
static CUresult load(CUlibrary *out, struct image image, CUresult r, struct jit *jit, bool eager, bool preserved)
{
	if (r != CUDA_SUCCESS || (!preserved && (r = image_keep(&image)) != CUDA_SUCCESS))
		return module_refuse(jit, r);
	struct library *l = handle_new(&libraries);
	if (!l) {
		image_drop(&image);
		return module_refuse(jit, CUDA_ERROR_OUT_OF_MEMORY);
	}
	l->image = image;
	l->inspected = false;
	l->loaded = NULL;
	if ((eager || !image.fat) && (r = inspect(l, jit)) != CUDA_SUCCESS) {
		image_drop(&l->image);
		handle_free(&libraries, l);
		return r;
	}
	handle_publish(l);
	*out = HANDLE_OF(CUlibrary, l);
	return CUDA_SUCCESS;
}

CUresult pg_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitValues,
	unsigned int jitCount, CUlibraryOption *options, void **values, unsigned int count)
{
	struct jit jit;
	bool preserved;
	CUresult r = jit_read(jitCount, jitOptions, jitValues, &jit);
	if (r == CUDA_SUCCESS)
		r = read_options(options, values, count, &preserved);
	if (r != CUDA_SUCCESS)
		return r;
	if (!library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	struct image image = {0};
	r = image_choose(code, least_capability(), takes_code(), &image);
	return load(library, image, r, &jit, jitCount > 0, preserved);
}

CUresult pg_cuLibraryLoadFromFile(CUlibrary *library, const char *name, CUjit_option *jitOptions, void **jitValues,
	unsigned int jitCount, CUlibraryOption *options, void **values, unsigned int count)
{
	struct jit jit;
	bool preserved;
	CUresult r = jit_read(jitCount, jitOptions, jitValues, &jit);
	if (r == CUDA_SUCCESS)
		r = read_options(options, values, count, &preserved);
	if (r != CUDA_SUCCESS)
		return r;
	if (!library || !name)
		return CUDA_ERROR_INVALID_VALUE;
	struct image_file file;
	struct image image = {0};
	r = image_read_file(name, &file);
	if (r == CUDA_SUCCESS) {
		r = image_choose_file(&file, least_capability(), takes_code(), &image);
		r = load(library, image, r, &jit, jitCount > 0, false);
	}
	free(file.bytes);
	return r;
}

/* --- unloading --- */

static void forget_kernel(uint64_t handle)
{
	struct kernel *k = handle_find(&kernels, handle);
	if (k && handle_retire(k))
		handle_free(&kernels, k);
}

CUresult pg_cuLibraryUnload(CUlibrary handle)
{
	struct library *l;
	CUresult r = lock_library(handle, &l);
	if (r != CUDA_SUCCESS)
		return r;
	handle_retire(l);
	for (uint32_t i = 0; l->inspected && i < l->layout.functionCount; i++)
		forget_kernel(l->kernels[i]);
	while (l->loaded) {
		struct loaded *last = l->loaded;
		l->loaded = last->next;
		module_unload(last->module);
		free(last);
	}
	if (l->inspected) {
		free(l->kernels);
		layout_free(&l->layout);
	}
	image_drop(&l->image);
	handle_free(&libraries, l);
	return unlock(CUDA_SUCCESS);
}

/* --- a library within a context; the functions below require the lock --- */

static const char *name_of(const struct library *l, uint32_t index)
{
	return l->layout.strings + l->layout.functions[index].name;
}

/* Applies the kernel's settings to its function, except those that were set on the function itself. */
static void settle(const struct settings *s, struct function *f)
{
	if (s->dynamicSet && !f->dynamicSet)
		f->maxDynamicShared = s->maxDynamicShared;
	for (enum hint h = 0; h < HINTS; h++)
		if (s->hintSet[h] && !f->hintSet[h])
			f->hints[h] = s->hints[h];
}

static void settle_in(const struct library *l, uint32_t index, const struct settings *s, uint64_t module)
{
	CUfunction handle;
	struct function *f;
	if (pg_cuModuleGetFunction(&handle, (CUmodule)(uintptr_t)module, name_of(l, index)) == CUDA_SUCCESS && (f = function_find(handle)))
		settle(s, f);
}

static void settle_all(const struct library *l, const struct context *c, uint64_t module)
{
	for (uint32_t i = 0; l->inspected && i < l->layout.functionCount; i++) {
		const struct kernel *k = handle_find(&kernels, l->kernels[i]);
		const struct settings *s = k ? &k->settings[c->device] : NULL;
		if (s && s->any)
			settle_in(l, i, s, module);
	}
}

/* Returns the library's module in a context, or 0. Drops those that were destroyed with their contexts. */
static uint64_t find_module(struct library *l, uint64_t context)
{
	uint64_t found = 0;
	for (struct loaded **at = &l->loaded; *at;) {
		struct loaded *here = *at;
		if (!handle_find(&modules, here->module)) {
			*at = here->next;
			free(here);
			continue;
		}
		if (here->context == context)
			found = here->module;
		at = &here->next;
	}
	return found;
}

/* As find_module, but loads the module if necessary. context 0: the current one. */
static CUresult module_in(struct library *l, uint64_t context, uint64_t *module)
{
	struct context *c;
	CUresult r = context_of((CUcontext)(uintptr_t)context, &c);
	if (r != CUDA_SUCCESS)
		return r;
	*module = find_module(l, c->object.id);
	if (*module)
		return CUDA_SUCCESS;
	struct loaded *here = malloc(sizeof *here);
	if (!here)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct jit silent = {0};
	r = module_load(c, &l->image, &silent, l->object.id, module);
	if (r != CUDA_SUCCESS) {
		free(here);
		return r;
	}
	*here = (struct loaded){.context = c->object.id, .module = *module, .next = l->loaded};
	l->loaded = here;
	settle_all(l, c, *module);
	return CUDA_SUCCESS;
}

/* --- contents of a library --- */

CUresult pg_cuLibraryGetModule(CUmodule *out, CUlibrary handle)
{
	struct library *l;
	uint64_t module = 0;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_library(handle, &l);
	if (r != CUDA_SUCCESS)
		return r;
	r = module_in(l, 0, &module);
	if (r == CUDA_SUCCESS)
		*out = (CUmodule)(uintptr_t)module;
	return unlock(r);
}

CUresult pg_cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
	struct library *l;
	uint64_t module = 0;
	if (!name || (!address && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_library(handle, &l);
	if (r != CUDA_SUCCESS)
		return r;
	r = module_in(l, 0, &module);
	if (r == CUDA_SUCCESS)
		r = *name ? pg_cuModuleGetGlobal_v2(address, bytes, (CUmodule)(uintptr_t)module, name) : CUDA_ERROR_NOT_FOUND;
	return unlock(r);
}

static CUresult absent(CUlibrary handle, const char *name)
{
	struct library *l;
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_library(handle, &l);
	return r == CUDA_SUCCESS ? unlock(CUDA_ERROR_NOT_FOUND) : r;
}

/* Managed variables of a program are the device's own here: the host cannot access them, so they are not found. */
CUresult pg_cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
	return address || bytes ? absent(handle, name) : CUDA_ERROR_INVALID_VALUE;
}

/* No device here shares functions with the host (CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS). */
CUresult pg_cuLibraryGetUnifiedFunction(void **out, CUlibrary handle, const char *name)
{
	return out ? absent(handle, name) : CUDA_ERROR_INVALID_VALUE;
}

/* --- kernels --- */

/* Requires the lock. Every kernel has one handle, created on first use. */
static CUresult give_kernel(struct library *l, uint32_t index, CUkernel *out)
{
	if (l->kernels[index] == 0) {
		struct kernel *k = handle_new(&kernels);
		if (!k)
			return CUDA_ERROR_OUT_OF_MEMORY;
		k->library = l->object.id;
		k->index = index;
		k->recent = 0;
		memset(k->settings, 0, sizeof k->settings);
		handle_publish(k);
		l->kernels[index] = k->object.id;
	}
	*out = (CUkernel)(uintptr_t)l->kernels[index];
	return CUDA_SUCCESS;
}

CUresult pg_cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name)
{
	struct library *l;
	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_inspected(handle, &l);
	if (r != CUDA_SUCCESS)
		return r;
	int64_t index = layout_find_function(&l->layout, name);
	return unlock(index < 0 ? CUDA_ERROR_NOT_FOUND : give_kernel(l, (uint32_t)index, out));
}

CUresult pg_cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
	struct library *l;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_inspected(handle, &l);
	if (r != CUDA_SUCCESS)
		return r;
	*count = l->layout.functionCount;
	return unlock(CUDA_SUCCESS);
}

CUresult pg_cuLibraryEnumerateKernels(CUkernel *out, unsigned int count, CUlibrary handle)
{
	struct library *l;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_inspected(handle, &l);
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < count && i < l->layout.functionCount; i++)
		r = give_kernel(l, i, &out[i]);
	return unlock(r);
}

static CUresult find_function(uint64_t handle, uint64_t context, CUfunction *out)
{
	struct kernel *k;
	struct library *l;
	uint64_t module;
	CUresult r = lock_kernel(handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	r = module_in(l, context, &module);
	if (r == CUDA_SUCCESS)
		r = pg_cuModuleGetFunction(out, (CUmodule)(uintptr_t)module, name_of(l, k->index));
	if (r == CUDA_SUCCESS)
		atomic_store_explicit(&k->recent, (uint64_t)(uintptr_t)*out, memory_order_relaxed);
	return unlock(r);
}

/* Launches within one context do this without a lock. */
CUresult kernel_function(uint64_t handle, uint64_t context, CUfunction *out)
{
	struct kernel *k = handle_find(&kernels, handle);
	if (UNLIKELY(!k))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUfunction)(uintptr_t)atomic_load_explicit(&k->recent, memory_order_relaxed);
	struct function *f = function_find(*out);
	if (LIKELY(f && f->context == (context ? context : context_top())))
		return CUDA_SUCCESS;
	return find_function(handle, context, out);
}

CUresult pg_cuKernelGetFunction(CUfunction *out, CUkernel handle)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUfunction found;
	CUresult r = kernel_function((uint64_t)(uintptr_t)handle, 0, &found);
	if (r == CUDA_SUCCESS)
		*out = found;
	return r;
}

CUresult pg_cuKernelGetLibrary(CUlibrary *out, CUkernel handle)
{
	struct kernel *k;
	struct library *l;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_kernel((uint64_t)(uintptr_t)handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	*out = HANDLE_OF(CUlibrary, l);
	return unlock(CUDA_SUCCESS);
}

/* The name is valid as long as the library. */
CUresult pg_cuKernelGetName(const char **name, CUkernel handle)
{
	struct kernel *k;
	struct library *l;
	if (!name || !handle)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_kernel((uint64_t)(uintptr_t)handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	*name = name_of(l, k->index);
	return unlock(CUDA_SUCCESS);
}

CUresult pg_cuKernelGetParamCount(CUkernel handle, size_t *count)
{
	struct kernel *k;
	struct library *l;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_kernel((uint64_t)(uintptr_t)handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	*count = l->layout.functions[k->index].paramCount;
	return unlock(CUDA_SUCCESS);
}

CUresult pg_cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
	struct kernel *k;
	struct library *l;
	if (!offset)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = lock_kernel((uint64_t)(uintptr_t)handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	const struct layout_function *f = &l->layout.functions[k->index];
	if (index >= f->paramCount)
		return unlock(CUDA_ERROR_INVALID_VALUE);
	*offset = l->layout.params[f->paramFirst + index].offset;
	if (size)
		*size = l->layout.params[f->paramFirst + index].size;
	return unlock(CUDA_SUCCESS);
}

/* --- settings, by device --- */

CUresult pg_cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice device)
{
	struct kernel *k;
	struct library *l;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	CUresult r = lock_kernel((uint64_t)(uintptr_t)handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	const struct layout_function *facts = &l->layout.functions[k->index];
	const struct settings *s = &k->settings[device];
	enum hint hint = function_hint(attribute);
	if (hint == NO_HINT)
		return unlock(function_attribute(facts, attribute, s->dynamicSet ? s->maxDynamicShared : facts->maxDynamicShared, value));
	*value = s->hintSet[hint] ? s->hints[hint] : function_hint_before(hint);
	return unlock(CUDA_SUCCESS);
}

/* Takes effect in all present and future contexts of the device, except where cuFuncSetAttribute was used. */
CUresult pg_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device)
{
	struct kernel *k;
	struct library *l;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	CUresult r = lock_kernel((uint64_t)(uintptr_t)handle, &k, &l);
	if (r != CUDA_SUCCESS)
		return r;
	struct settings *s = &k->settings[device];
	r = function_check_attribute(&l->layout.functions[k->index], device, attribute, value);
	if (r != CUDA_SUCCESS)
		return unlock(r);
	enum hint hint = function_hint(attribute);
	s->any = true;
	if (hint == NO_HINT) {
		s->dynamicSet = true;
		s->maxDynamicShared = value;
	} else {
		s->hintSet[hint] = true;
		s->hints[hint] = value;
	}
	for (const struct loaded *here = l->loaded; here; here = here->next) {
		const struct context *c = handle_find(&contexts, here->context);
		if (c && c->device == device)
			settle_in(l, k->index, s, here->module);
	}
	return unlock(CUDA_SUCCESS);
}

/* A hint, as for functions. */
CUresult pg_cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device)
{
	if (!handle_find(&kernels, (uint64_t)(uintptr_t)handle))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
