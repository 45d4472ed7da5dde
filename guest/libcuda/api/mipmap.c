/*
 * Mipmapped arrays: one array per level, each of which programs copy to and from, and use as a texture or surface.
 * No accelerator samples mipmaps, so a texture of a mipmapped array is accepted only if the array has one level.
 */
#include "core/zz_impl.h"
#include "object/array.h"
#include "object/context.h"

static struct mipmap *mipmap_find(CUmipmappedArray handle) { return handle_find(&mipmaps, (uint64_t)(uintptr_t)handle); }

static size_t half(size_t n, unsigned int times) { return n == 0 ? 0 : n >> times ? n >> times : 1; }

/* Dimensions halve from level to level; layers and the faces of a cube stay. */
static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
	CUDA_ARRAY3D_DESCRIPTOR l = *d;
	l.Width = half(d->Width, level);
	l.Height = half(d->Height, level);
	if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		l.Depth = half(d->Depth, level);
	return l;
}

/* The number of levels until all dimensions are one element. */
static unsigned int levels_most(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	bool layers = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	size_t side = d->Width > d->Height ? d->Width : d->Height;
	if (!layers && d->Depth > side)
		side = d->Depth;
	unsigned int n = 1;
	for (; side > 1 && n < MIPMAP_LEVELS; side /= 2)
		n++;
	return n;
}

static void destroy_levels(const struct mipmap *m)
{
	for (unsigned int i = 0; i < m->levels; i++) {
		struct array *a = handle_find(&arrays, (uint64_t)(uintptr_t)m->level[i]);
		if (a)
			a->mipmapped = false;
		pg_cuArrayDestroy(m->level[i]);
	}
}

CUresult pg_cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	struct mipmap *m = handle_new(&mipmaps);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	unsigned int most = levels_most(d);
	levels = levels < 1 ? 1 : levels > most ? most : levels;
	m->context = c->object.id;
	for (m->levels = 0; r == CUDA_SUCCESS && m->levels < levels; m->levels += r == CUDA_SUCCESS) {
		CUDA_ARRAY3D_DESCRIPTOR l = level_of(d, m->levels);
		r = pg_cuArray3DCreate_v2(&m->level[m->levels], &l);
		struct array *a = r == CUDA_SUCCESS ? handle_find(&arrays, (uint64_t)(uintptr_t)m->level[m->levels]) : NULL;
		if (a)
			a->mipmapped = true;
	}
	if (r != CUDA_SUCCESS) {
		destroy_levels(m);
		handle_free(&mipmaps, m);
		return r;
	}
	handle_publish(m);
	*out = HANDLE_OF(CUmipmappedArray, m);
	return CUDA_SUCCESS;
}

CUresult pg_cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned int level)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	struct mipmap *m = mipmap_find(handle);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (level >= m->levels)
		return CUDA_ERROR_INVALID_VALUE;
	*out = m->level[level];
	return CUDA_SUCCESS;
}

CUresult pg_cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
	struct mipmap *m = mipmap_find(handle);
	struct context *c = m ? handle_find(&contexts, m->context) : NULL;
	CUresult r = c ? context_error(c->wire) : CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_retire(m))
		return CUDA_ERROR_INVALID_HANDLE;
	destroy_levels(m);
	handle_free(&mipmaps, m);
	return CUDA_SUCCESS;
}

/* No array here has planes: creating an array of a multi-planar format fails. */
CUresult pg_cuArrayGetPlane(CUarray *out, CUarray handle, unsigned int plane)
{
	(void)plane;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return handle_find(&arrays, (uint64_t)(uintptr_t)handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}
