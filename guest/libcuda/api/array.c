/* Arrays, texture and surface objects: created under ids that the guest chooses; the guest stores their descriptions. */
#include "api/array.h"

#include <string.h>

#include "core/device.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "object/array.h"
#include "object/context.h"
#include "work/copy.h"

enum { SIDE_MOST = 131072, DEPTH_MOST = 16384, LINEAR_MOST = 1 << 27 };

bool array_channels_valid(uint32_t n) { return n == 1 || n == 2 || n == 4; }

static CUresult check_array(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	if (d->Width == 0 || d->Width > SIDE_MOST || d->Height > SIDE_MOST || d->Depth > DEPTH_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (!array_channels_valid(d->NumChannels) || array_format_bytes(d->Format) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
	if (d->Flags & ~known)
		return CUDA_ERROR_NOT_SUPPORTED;
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;
	bool good = layered ? d->Depth > 0 : d->Depth == 0 || d->Height > 0;
	if (cube)
		good = d->Width == d->Height && (layered ? d->Depth > 0 && d->Depth % 6 == 0 : d->Depth == 6);
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	if ((r = check_array(d)) != CUDA_SUCCESS)
		return r;
	struct array *a = handle_new(&arrays);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->context = c->object.id;
	a->wireContext = c->wire;
	a->width = d->Width;
	a->height = d->Height;
	a->depth = d->Depth;
	a->format = (uint32_t)d->Format;
	a->channels = d->NumChannels;
	a->flags = d->Flags;
	a->mipmapped = false;
	a->elementBytes = array_format_bytes(d->Format) * d->NumChannels;
	struct array_create_args args = {
		.array = a->object.id, .width = a->width, .height = a->height, .depth = a->depth, .format = a->format,
		.channels = a->channels, .flags = a->flags,
	};
	struct packet p = {.op = OP_ARRAY_CREATE, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, NULL, 0);
	if (r != CUDA_SUCCESS) {
		handle_free(&arrays, a);
		return r;
	}
	handle_publish(a);
	*out = HANDLE_OF(CUarray, a);
	return CUDA_SUCCESS;
}

CUresult pg_cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
	if (!d)
		return pg_cuArray3DCreate_v2(out, NULL);
	CUDA_ARRAY3D_DESCRIPTOR full = {
		.Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels,
	};
	return pg_cuArray3DCreate_v2(out, &full);
}

CUresult pg_cuArrayDestroy(CUarray handle)
{
	struct array *a = array_find(handle);
	CUresult r = a ? context_error(a->wireContext) : CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return r;
	if (a->mipmapped) /* a level lives as long as its mipmapped array; NVIDIA's driver 580 returns success, too */
		return CUDA_SUCCESS;
	if (!handle_retire(a))
		return CUDA_ERROR_INVALID_HANDLE;
	struct array_destroy_args args = {.array = a->object.id};
	struct packet p = {.op = OP_ARRAY_DESTROY, .context = a->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_post(&p);
	handle_free(&arrays, a);
	return r;
}

CUresult pg_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *d, CUarray handle)
{
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	struct array *a = array_find(handle);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	*d = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = a->width, .Height = a->height, .Depth = a->depth, .Format = (CUarray_format)a->format,
		.NumChannels = a->channels, .Flags = a->flags,
	};
	return CUDA_SUCCESS;
}

CUresult pg_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *d, CUarray handle)
{
	CUDA_ARRAY3D_DESCRIPTOR full;
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = pg_cuArray3DGetDescriptor_v2(&full, handle);
	if (r == CUDA_SUCCESS)
		*d = (CUDA_ARRAY_DESCRIPTOR){
			.Width = full.Width, .Height = full.Height, .Format = full.Format, .NumChannels = full.NumChannels,
		};
	return r;
}

/* --- texture objects --- */

static CUresult check_linear(CUdeviceptr address, CUarray_format format, unsigned int channels, uint64_t bytes)
{
	struct copy_endpoint end;
	if (!address || address % TEXTURE_ALIGNMENT != 0 || array_format_bytes(format) == 0 || !array_channels_valid(channels) || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return endpoint_from_address(address, bytes, true, &end);
}

/* Sets *a to the array that a resource refers to. */
static CUresult array_of(const CUDA_RESOURCE_DESC *d, struct array **a)
{
	struct mipmap *m;
	if (d->resType == CU_RESOURCE_TYPE_ARRAY) {
		*a = array_find(d->res.array.hArray);
	} else {
		m = handle_find(&mipmaps, (uint64_t)(uintptr_t)d->res.mipmap.hMipmappedArray);
		if (m && m->levels > 1)
			return CUDA_ERROR_NOT_SUPPORTED;
		*a = m ? array_find(m->level[0]) : NULL;
	}
	return *a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult describe_resource(const CUDA_RESOURCE_DESC *d, struct texture_create_args *args)
{
	struct array *a;
	CUresult r;
	uint64_t bytes;
	if (d->flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	args->resource = (uint32_t)d->resType;
	switch ((unsigned)d->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		r = array_of(d, &a);
		if (r != CUDA_SUCCESS)
			return r;
		args->resource = CU_RESOURCE_TYPE_ARRAY;
		args->address = a->object.id;
		args->width = a->width;
		args->height = a->height;
		args->format = a->format;
		args->channels = a->channels;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_LINEAR:
		args->address = d->res.linear.devPtr;
		args->format = (uint32_t)d->res.linear.format;
		args->channels = d->res.linear.numChannels;
		args->pitch = d->res.linear.sizeInBytes;
		r = check_linear(args->address, d->res.linear.format, args->channels, args->pitch);
		if (r == CUDA_SUCCESS) {
			args->width = args->pitch / (array_format_bytes(d->res.linear.format) * args->channels);
			args->height = 1;
		}
		return r == CUDA_SUCCESS && (args->width == 0 || args->width > LINEAR_MOST) ? CUDA_ERROR_INVALID_VALUE : r;
	case CU_RESOURCE_TYPE_PITCH2D:
		args->address = d->res.pitch2D.devPtr;
		args->format = (uint32_t)d->res.pitch2D.format;
		args->channels = d->res.pitch2D.numChannels;
		args->width = d->res.pitch2D.width;
		args->height = d->res.pitch2D.height;
		args->pitch = d->res.pitch2D.pitchInBytes;
		if (args->width == 0 || args->width > SIDE_MOST || args->height == 0 || args->height > SIDE_MOST ||
			__builtin_mul_overflow(args->pitch, args->height - 1, &bytes))
			return CUDA_ERROR_INVALID_VALUE;
		uint64_t row = args->width * array_format_bytes(d->res.pitch2D.format) * args->channels;
		if (args->pitch < row || args->pitch % PITCH_ALIGNMENT != 0 || __builtin_add_overflow(bytes, row, &bytes))
			return CUDA_ERROR_INVALID_VALUE;
		return check_linear(args->address, d->res.pitch2D.format, args->channels, bytes);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult describe_texture(const CUDA_TEXTURE_DESC *t, struct texture_create_args *args)
{
	for (int i = 0; i < 3; i++) {
		if ((unsigned)t->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
			return CUDA_ERROR_INVALID_VALUE;
		args->addressMode[i] = (uint32_t)t->addressMode[i];
	}
	if ((unsigned)t->filterMode > CU_TR_FILTER_MODE_LINEAR || t->maxAnisotropy > 16)
		return CUDA_ERROR_INVALID_VALUE;
	args->filterMode = (uint32_t)t->filterMode;
	args->flags = t->flags;
	memcpy(args->borderColor, t->borderColor, sizeof args->borderColor);
	return CUDA_SUCCESS;
}

/* --- handles issued to the program --- */

struct search {
	uint64_t handle;
	struct texture *found;
};

static void look_at(void *object, void *argument)
{
	struct texture *t = object;
	struct search *s = argument;
	if (t->given == s->handle)
		s->found = t;
}

/* A handle chosen by the device may equal the table's handle of another texture, so this searches. */
struct texture *texture_find(struct table *table, uint64_t handle)
{
	struct texture *t = handle_find(table, handle);
	if (t && t->given == handle)
		return t;
	struct search s = {.handle = handle};
	if (handle != 0)
		handle_each(table, look_at, &s);
	return s.found;
}

/*
 * Issues the handle of a texture that the host has created, fetching it if the device chooses handles; publishes the
 * texture. On failure it frees the texture.
 */
static CUresult give_handle(struct table *table, const struct context *c, struct texture *t, unsigned long long *out)
{
	t->given = t->object.id;
	if (device_gives_handles(c->device)) {
		struct texture_handle_args args = {.texture = t->object.id};
		struct texture_handle_result answer;
		struct packet p = {.op = OP_TEXTURE_HANDLE, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
		CUresult r = ring_call(&p, &answer, sizeof answer);
		if (r != CUDA_SUCCESS) {
			handle_free(table, t);
			return r;
		}
		t->given = answer.handle;
	}
	handle_publish(t);
	*out = t->given;
	return CUDA_SUCCESS;
}

/* Has to be fast: filters create one per frame and plane. */
CUresult pg_cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
	const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !resource || !texture)
		return CUDA_ERROR_INVALID_VALUE;
	if (view)
		return resource->resType == CU_RESOURCE_TYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	struct texture_create_args args = {0};
	if ((r = describe_resource(resource, &args)) != CUDA_SUCCESS || (r = describe_texture(texture, &args)) != CUDA_SUCCESS)
		return r;
	struct texture *t = handle_new(&textures);
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->context = c->object.id;
	t->wireContext = c->wire;
	t->resource = *resource;
	t->texture = *texture;
	args.texture = t->object.id;
	struct packet p = {.op = OP_TEXTURE_CREATE, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_post(&p);
	if (r != CUDA_SUCCESS) {
		handle_free(&textures, t);
		return r;
	}
	return give_handle(&textures, c, t, out);
}

/* A handle of no texture, 0 among them, is no error: NVIDIA's driver (580, on an H200) returns success. */
CUresult pg_cuTexObjectDestroy(CUtexObject handle)
{
	struct texture *t = texture_find(&textures, handle);
	if (!t || !handle_retire(t))
		return CUDA_SUCCESS;
	struct texture_destroy_args args = {.texture = t->object.id};
	struct packet p = {.op = OP_TEXTURE_DESTROY, .context = t->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	handle_free(&textures, t);
	return r;
}

/* No texture here has a resource view. */
CUresult pg_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *out, CUtexObject handle)
{
	(void)out;
	(void)handle;
	return CUDA_ERROR_INVALID_VALUE;
}

/* --- surface objects --- */

CUresult check_surface(CUarray handle, uint64_t *id)
{
	struct array *a = array_find(handle);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	*id = a->object.id;
	return a->flags & CUDA_ARRAY3D_SURFACE_LDST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Also for an array without CUDA_ARRAY3D_SURFACE_LDST, as NVIDIA's driver (580, on an H200) does; a surface reference
 * rejects that one.
 */
CUresult pg_cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY || resource->flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct array *a = array_find(resource->res.array.hArray);
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	struct surface_create_args args = {.array = a->object.id};
	struct texture *s = handle_new(&surfaces);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->context = c->object.id;
	s->wireContext = c->wire;
	s->resource = *resource;
	args.surface = s->object.id;
	struct packet p = {.op = OP_SURFACE_CREATE, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_post(&p);
	if (r != CUDA_SUCCESS) {
		handle_free(&surfaces, s);
		return r;
	}
	return give_handle(&surfaces, c, s, out);
}

CUresult pg_cuSurfObjectDestroy(CUsurfObject handle)
{
	struct texture *s = texture_find(&surfaces, handle);
	if (!s || !handle_retire(s))
		return CUDA_SUCCESS;
	struct texture_destroy_args args = {.texture = s->object.id};
	struct packet p = {.op = OP_TEXTURE_DESTROY, .context = s->wireContext, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_post(&p);
	handle_free(&surfaces, s);
	return r;
}
