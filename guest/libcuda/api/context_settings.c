/* Settings and queries of a context, served by the guest except for limits that the host needs. */
#include "api/context.h"
#include "core/device.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"
#include "graph/capture.h"
#include "graph/version.h"
#include "object/context.h"
#include "work/pool.h"

/* Checks that the devices' compute capability includes the limit. */
static CUresult check_limit(CUlimit limit)
{
	if ((unsigned)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	return (unsigned)limit <= CU_LIMIT_MAX_L2_FETCH_GRANULARITY ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

CUresult pg_cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	r = check_limit(limit);
	if (r == CUDA_SUCCESS)
		*value = c->limits[limit];
	return r;
}

CUresult pg_cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if ((r = check_limit(limit)) != CUDA_SUCCESS)
		return r;
	struct context_set_limit_args args = {.limit = (uint32_t)limit, .value = value};
	struct context_set_limit_result answer;
	struct packet p = {.op = OP_CONTEXT_SET_LIMIT, .context = c->wire, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		c->limits[limit] = answer.value;
	return r;
}

CUresult pg_cuCtxSynchronize(void) { return pg_cuCtxSynchronize_v2(NULL); }

CUresult pg_cuCtxSynchronize_v2(CUcontext ctx)
{
	struct context *c;
	CUresult r = context_of(ctx, &c);
	if (r == CUDA_SUCCESS)
		r = capture_refuse_context(c->object.id);
	if (r != CUDA_SUCCESS)
		return r;
	struct packet p = CONTEXT_PACKET(c, OP_CONTEXT_SYNCHRONIZE);
	r = text_shown(p.context, ring_wait(&p, context_sleeps(c)));
	pools_synchronised();
	versions_synchronised();
	return r;
}

CUresult pg_cuCtxGetDevice(CUdevice *device) { return pg_cuCtxGetDevice_v2(device, NULL); }

/* Also works for a destroyed primary context, as with NVIDIA's driver (580, on an H200). */
CUresult pg_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	struct context *c;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = context_of(ctx, &c);
	if (r == CUDA_ERROR_CONTEXT_IS_DESTROYED && (c = context_kept(context_top())))
		r = CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		*device = c->device;
	return r;
}
