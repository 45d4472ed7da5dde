/*
 * Stream attributes. The library implements the synchronization policy. It only stores attributes that tune caches or
 * memory order of a device, and also a priority set after creation: the host orders work by the priority of the
 * stream's creation.
 */
#include "core/device.h"
#include "core/zz_impl.h"
#include "object/context.h"
#include "object/stream.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the attributes of all streams */

/* A stream with its context; object NULL: the legacy stream. */
struct found {
	struct stream_attributes *attributes;
	struct stream *stream;
	struct context *context;
};

/* Accepts the calling thread's default stream, too. */
static CUresult find(CUstream handle, struct found *f)
{
	struct stream_ref ref;
	CUresult r = stream_look_up(handle, &f->stream, &f->context);
	if (r == CUDA_SUCCESS)
		r = stream_ref_of(handle, &ref);
	if (r != CUDA_SUCCESS)
		return r;
	f->stream = ref.stream == WIRE_LEGACY ? NULL : handle_find(&streams, ref.stream);
	f->attributes = f->stream ? &f->stream->attributes : &f->context->attributes;
	return CUDA_SUCCESS;
}

static CUresult get(const struct stream_attributes *m, const struct stream *s, CUstreamAttrID what, CUstreamAttrValue *value)
{
	switch ((unsigned)what) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = m->window;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = m->policy ? m->policy : CU_SYNC_POLICY_AUTO;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = s ? s->priority : 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap = m->domains;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = m->domain;
		return CUDA_SUCCESS;
	default: /* attributes of launches only, or unknown */
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static bool valid_window(const CUaccessPolicyWindow *w)
{
	bool misses = w->missProp == CU_ACCESS_PROPERTY_NORMAL || w->missProp == CU_ACCESS_PROPERTY_STREAMING;
	return w->hitRatio >= 0 && w->hitRatio <= 1 && (unsigned)w->hitProp <= CU_ACCESS_PROPERTY_PERSISTING && misses;
}

static CUresult set(struct stream_attributes *m, struct stream *s, CUstreamAttrID what, const CUstreamAttrValue *value)
{
	bool good;
	switch ((unsigned)what) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		good = valid_window(&value->accessPolicyWindow);
		if (good)
			m->window = value->accessPolicyWindow;
		break;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		good = (unsigned)value->syncPolicy >= CU_SYNC_POLICY_AUTO && (unsigned)value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC;
		if (good)
			m->policy = value->syncPolicy;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		if (!s)
			return value->priority == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
		s->priority = stream_priority(value->priority);
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: /* there is one domain */
		good = value->memSyncDomainMap.default_ == 0 && value->memSyncDomainMap.remote == 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		good = (unsigned)value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
		if (good)
			m->domain = value->memSyncDomain;
		break;
	default:
		good = false;
	}
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pg_cuStreamGetAttribute(CUstream handle, CUstreamAttrID what, CUstreamAttrValue *value)
{
	struct found f;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = find(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	r = get(f.attributes, f.stream, what, value);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pg_cuStreamSetAttribute(CUstream handle, CUstreamAttrID what, const CUstreamAttrValue *value)
{
	struct found f;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = find(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	r = set(f.attributes, f.stream, what, value);
	pthread_mutex_unlock(&lock);
	return r;
}

/* Does not copy the priority. */
CUresult pg_cuStreamCopyAttributes(CUstream to, CUstream from)
{
	struct found mine, others;
	CUresult r = find(to, &mine);
	if (r != CUDA_SUCCESS || (r = find(from, &others)) != CUDA_SUCCESS)
		return r;
	if (mine.context != others.context)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	*mine.attributes = *others.attributes;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
