/* Host callbacks: submission to the ring or to a capture. */
#include "core/zz_impl.h"
#include "graph/capture.h"
#include "work/callback.h"

static CUresult queue(const struct callback_call *call)
{
	struct stream_ref ref;
	CUresult r = stream_resolve_any(call->stream, &ref);
	if (r == CUDA_SUCCESS && UNLIKELY(ref.capturing))
		return call->plain ? capture_host(&ref, call->plain, call->userData) : capture_refuse(ref.capturing);
	return r == CUDA_SUCCESS ? callback_queue(&ref, call) : r;
}

CUresult pg_cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	if (!callback || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return queue(&(struct callback_call){.stream = stream, .withStatus = callback, .userData = userData});
}

CUresult pg_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *userData)
{
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	return queue(&(struct callback_call){.stream = stream, .plain = function, .userData = userData});
}
