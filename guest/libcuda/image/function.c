#include "image/function.h"

#include "core/device.h"

enum hint function_hint(CUfunction_attribute attribute)
{
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return HINT_CARVEOUT;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: /* the host permits the cluster sizes that a launch needs */
		return HINT_NON_PORTABLE_CLUSTERS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return HINT_CLUSTER_POLICY;
	default:
		return NO_HINT;
	}
}

CUresult function_attribute(const struct layout_function *facts, CUfunction_attribute attribute, int32_t maxDynamicShared, int *value)
{
	if ((unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = facts->maxThreads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = facts->staticShared;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = facts->constBytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = facts->localBytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = facts->registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = facts->ptxVersion;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = facts->binaryVersion;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = maxDynamicShared;
		break;
	default: /* caching of loads; required cluster sizes, which the function itself declares */
		*value = 0;
	}
	return CUDA_SUCCESS;
}

/* Returns the largest dynamic shared memory that a block can have. */
static int64_t shared_limit(const struct layout_function *facts, int device)
{
	int64_t optin = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	int64_t plain = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
	return (optin > plain ? optin : plain) - facts->staticShared;
}

CUresult function_check_attribute(const struct layout_function *facts, int device, CUfunction_attribute attribute, int value)
{
	switch ((unsigned)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return value < 0 || value > shared_limit(facts, device) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return value < 0 || !device_attribute(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
