/*
 * Texture and surface references: variables of a module that the program binds to memory. A change of a reference takes
 * effect with the next launch, and earlier launches keep the old state. So each change creates an internal texture or
 * surface object and binds the reference to it.
 */
#include "api/reference.h"

#include <string.h>

#include "api/array.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "image/library.h"
#include "object/array.h"
#include "object/context.h"

static struct table references = HANDLE_TABLE(HANDLE_REFERENCE, struct reference, 60000);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void references_lock(void) { pthread_mutex_lock(&lock); }

void references_unlock(const bool *locked)
{
	(void)locked;
	pthread_mutex_unlock(&lock);
}

static struct table *table_of(const struct reference *r) { return r->isSurface ? &surfaces : &textures; }

static CUresult post(const struct reference *r, uint32_t op, const void *args, uint32_t bytes)
{
	struct packet p = {.op = op, .context = r->wireContext, .fixed = args, .fixedBytes = bytes};
	return ring_post(&p);
}

/* Creates on the host the object that the reference describes. */
static CUresult create(const struct reference *r, uint64_t id)
{
	struct texture_create_args t = {.texture = id};
	struct surface_create_args s = {.surface = id};
	CUresult result;
	if (r->isSurface) {
		result = check_surface(r->resource.res.array.hArray, &s.array);
		return result != CUDA_SUCCESS ? result : post(r, OP_SURFACE_CREATE, &s, sizeof s);
	}
	if ((result = describe_resource(&r->resource, &t)) != CUDA_SUCCESS || (result = describe_texture(&r->texture, &t)) != CUDA_SUCCESS)
		return result;
	return post(r, OP_TEXTURE_CREATE, &t, sizeof t);
}

/* Releases the object that the reference is bound to. */
static void let_go(struct reference *r)
{
	if (!r->bound)
		return;
	struct texture_destroy_args d = {.texture = r->bound->object.id};
	post(r, OP_TEXTURE_DESTROY, &d, sizeof d);
	handle_free(table_of(r), r->bound);
	r->bound = NULL;
}

/* Binds the reference to an object; NULL unbinds it. */
static CUresult bind(struct reference *r, struct texture *to)
{
	struct reference_bind_args b = {.module = r->wireModule, .reference = r->address, .texture = to ? to->object.id : 0};
	CUresult result = post(r, OP_REFERENCE_BIND, &b, sizeof b);
	let_go(r);
	r->bound = to;
	return result;
}

static CUresult unbind(struct reference *r)
{
	r->isSet = false;
	return r->bound ? bind(r, NULL) : CUDA_SUCCESS;
}

/* Creates an object with the reference's current state on the host and binds the reference to it. */
static CUresult renew(struct reference *r)
{
	if (r->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
		r->resource.res.linear.format = r->format;
		r->resource.res.linear.numChannels = (unsigned)r->channels;
	}
	struct texture *to = handle_new(table_of(r));
	if (to)
		to->given = 0; /* internal: not issued to a program */
	if (!to)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = create(r, to->object.id);
	if (result == CUDA_SUCCESS)
		return bind(r, to);
	handle_free(table_of(r), to);
	return result;
}

/* If the bound memory has been freed, the reference becomes unbound until the next binding. */
CUresult reference_changed(struct reference *r)
{
	CUresult result = r->isSet ? renew(r) : CUDA_SUCCESS;
	return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE ? unbind(r) : result;
}

CUresult reference_of(void *handle, bool isSurface, struct reference **r)
{
	*r = handle_find(&references, (uint64_t)(uintptr_t)handle);
	return *r && (*r)->isSurface == isSurface ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* --- lookup and destruction --- */

struct search {
	uint64_t module, address;
	struct reference *found;
};

static void compare(void *object, void *argument)
{
	struct reference *r = object;
	struct search *s = argument;
	if (r->module == s->module && r->address == s->address)
		s->found = r;
}

static struct reference *make(const struct module *m, const struct layout_global *g)
{
	struct reference *r = handle_new(&references);
	if (!r)
		return NULL;
	struct object object = r->object;
	*r = (struct reference){
		.object = object, .module = m->object.id, .wireContext = m->wireContext, .wireModule = m->wire,
		.address = g->address, .isSurface = g->kind == LAYOUT_SURFACE, .format = CU_AD_FORMAT_FLOAT, .channels = 1,
	};
	handle_publish(r);
	return r;
}

static CUresult find(CUmodule module, enum layout_kind kind, const char *name, uint64_t *handle)
{
	struct module *m;
	struct layout_global g;
	CUresult r = module_find_global(module, kind, name, &g, &m);
	if (r != CUDA_SUCCESS)
		return r;
	REFERENCES_LOCKED;
	struct search s = {.module = (uint64_t)(uintptr_t)module, .address = g.address};
	handle_each(&references, compare, &s);
	if (!s.found)
		s.found = make(m, &g);
	*handle = s.found ? s.found->object.id : 0;
	return s.found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pg_cuModuleGetTexRef(CUtexref *out, CUmodule module, const char *name)
{
	uint64_t handle = 0;
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = find(module, LAYOUT_TEXTURE, name, &handle);
	if (r == CUDA_SUCCESS)
		*out = (CUtexref)(uintptr_t)handle;
	return r;
}

CUresult pg_cuModuleGetSurfRef(CUsurfref *out, CUmodule module, const char *name)
{
	uint64_t handle = 0;
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = find(module, LAYOUT_SURFACE, name, &handle);
	if (r == CUDA_SUCCESS)
		*out = (CUsurfref)(uintptr_t)handle;
	return r;
}

static void forget(void *object, void *argument)
{
	struct reference *r = object;
	if (r->module != *(uint64_t *)argument || !handle_retire(r))
		return;
	let_go(r);
	handle_free(&references, r);
}

void reference_module_gone(uint64_t module)
{
	REFERENCES_LOCKED;
	handle_each(&references, forget, &module);
}

/* --- binding of texture references --- */

static CUresult set_resource(struct reference *r, const CUDA_RESOURCE_DESC *resource)
{
	r->resource = *resource;
	CUresult result = renew(r);
	r->isSet = true;
	if (result != CUDA_SUCCESS)
		unbind(r);
	return result;
}

CUresult pg_cuTexRefSetArray(CUtexref handle, CUarray array, unsigned int flags)
{
	struct reference *r;
	if (flags & ~(unsigned)CU_TRSA_OVERRIDE_FORMAT)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, false, &r);
	if (result != CUDA_SUCCESS)
		return result;
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	return array ? set_resource(r, &resource) : unbind(r);
}

/*
 * Linear memory must begin at the texture alignment: *offset is the distance from the aligned begin to the program's
 * address.
 */
CUresult pg_cuTexRefSetAddress_v2(size_t *offset, CUtexref handle, CUdeviceptr address, size_t bytes)
{
	struct reference *r;
	size_t before = address % TEXTURE_ALIGNMENT;
	if (before != 0 && !offset)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, false, &r);
	if (result != CUDA_SUCCESS)
		return result;
	CUDA_RESOURCE_DESC resource = {
		.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {.devPtr = address - before, .sizeInBytes = bytes + before},
	};
	result = address ? set_resource(r, &resource) : unbind(r);
	if (result == CUDA_SUCCESS && offset)
		*offset = before;
	return result;
}

CUresult pg_cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *d, CUdeviceptr address, size_t pitch)
{
	struct reference *r;
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, false, &r);
	if (result != CUDA_SUCCESS)
		return result;
	CUDA_RESOURCE_DESC resource = {
		.resType = CU_RESOURCE_TYPE_PITCH2D,
		.res.pitch2D = {.devPtr = address, .format = d->Format, .numChannels = d->NumChannels, .width = d->Width,
			.height = d->Height, .pitchInBytes = pitch},
	};
	return set_resource(r, &resource);
}

CUresult pg_cuTexRefGetArray(CUarray *out, CUtexref handle)
{
	struct reference *r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, false, &r);
	if (result != CUDA_SUCCESS)
		return result;
	bool is = r->isSet && r->resource.resType == CU_RESOURCE_TYPE_ARRAY;
	if (is)
		*out = r->resource.res.array.hArray;
	return is ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuTexRefGetAddress_v2(CUdeviceptr *out, CUtexref handle)
{
	struct reference *r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, false, &r);
	if (result != CUDA_SUCCESS)
		return result;
	bool linear = r->isSet && r->resource.resType == CU_RESOURCE_TYPE_LINEAR;
	bool pitched = r->isSet && r->resource.resType == CU_RESOURCE_TYPE_PITCH2D;
	if (linear || pitched)
		*out = linear ? r->resource.res.linear.devPtr : r->resource.res.pitch2D.devPtr;
	return linear || pitched ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- sampling --- */

CUresult pg_cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref handle)
{
	struct reference *r;
	if (!format && !channels)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, false, &r);
	if (result != CUDA_SUCCESS)
		return result;
	if (format)
		*format = r->format;
	if (channels)
		*channels = r->channels;
	return CUDA_SUCCESS;
}

/* Every function of a module uses all of the module's references. */
CUresult pg_cuParamSetTexRef(CUfunction function, int unit, CUtexref handle)
{
	struct reference *r;
	struct function *f;
	CUresult result = function_only(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (unit != CU_PARAM_TR_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	return reference_of(handle, false, &r);
}

/* --- surfaces --- */

CUresult pg_cuSurfRefSetArray(CUsurfref handle, CUarray array, unsigned int flags)
{
	struct reference *r;
	uint64_t id;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = check_surface(array, &id);
	REFERENCES_LOCKED;
	if (result == CUDA_SUCCESS)
		result = reference_of(handle, true, &r);
	if (result != CUDA_SUCCESS)
		return result;
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	return set_resource(r, &resource);
}

CUresult pg_cuSurfRefGetArray(CUarray *out, CUsurfref handle)
{
	struct reference *r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	REFERENCES_LOCKED;
	CUresult result = reference_of(handle, true, &r);
	if (result != CUDA_SUCCESS)
		return result;
	if (r->isSet)
		*out = r->resource.res.array.hArray;
	return r->isSet ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
