/* Device queries, answered from the snapshot that cuInit fetched. */
#include <stdio.h>
#include <string.h>

#include "core/connect.h"
#include "core/device.h"
#include "core/zz_impl.h"
#include "object/array.h"

CUresult pg_cuInit(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return process_start();
}

CUresult pg_cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

/* The checks common to all device queries. */
static CUresult ask(const void *out, CUdevice device)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return device_exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult copy_string(char *out, int length, const char *text)
{
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(out, (size_t)length, "%s", text);
	return CUDA_SUCCESS;
}

CUresult pg_cuDeviceGetName(char *name, int length, CUdevice device)
{
	CUresult r = ask(name, device);
	return r == CUDA_SUCCESS ? copy_string(name, length, device_at(device)->name) : r;
}

CUresult pg_cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	CUresult r = ask(id, device);
	return r == CUDA_SUCCESS ? copy_string(id, length, device_at(device)->pciBusId) : r;
}

CUresult pg_cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	CUresult r = ask(major, device);
	if (r != CUDA_SUCCESS)
		return r;
	if (!minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return CUDA_SUCCESS;
}

/* Parses "domain:bus:device.function", hexadecimal; domain and function are optional. */
static bool parse_bus_id(const char *text, unsigned id[4])
{
	char rest;
	id[0] = id[3] = 0;
	if (sscanf(text, "%x:%x:%x.%x%c", &id[0], &id[1], &id[2], &id[3], &rest) == 4 ||
		sscanf(text, "%x:%x:%x%c", &id[0], &id[1], &id[2], &rest) == 3)
		return true;
	id[0] = 0;
	return sscanf(text, "%x:%x.%x%c", &id[1], &id[2], &id[3], &rest) == 3;
}

CUresult pg_cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
	unsigned want[4], have[4];
	if (!device || !text || !parse_bus_id(text, want))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < device_count(); i++)
		if (parse_bus_id(device_at(i)->pciBusId, have) && memcmp(want, have, sizeof want) == 0) {
			*device = i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult pg_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	CUresult r = ask(can, device);
	if (r != CUDA_SUCCESS)
		return r;
	if (!device_exists(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = 0;
	return CUDA_SUCCESS;
}

CUresult pg_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
	CUresult r = ask(value, from);
	if (r != CUDA_SUCCESS)
		return r;
	if (!device_exists(to) || from == to)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((unsigned)attribute == 0 || (unsigned)attribute > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

CUresult pg_cuDeviceGetProperties(CUdevprop *p, CUdevice device)
{
	CUresult r = ask(p, device);
	if (r != CUDA_SUCCESS)
		return r;
	*p = (CUdevprop){
		.maxThreadsPerBlock = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
		.sharedMemPerBlock = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
		.totalConstantMemory = device_attribute(device, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
		.SIMDWidth = device_attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
		.memPitch = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
		.regsPerBlock = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
		.clockRate = device_attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
		.textureAlign = device_attribute(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
	};
	for (int i = 0; i < 3; i++) {
		p->maxThreadsDim[i] = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
		p->maxGridSize[i] = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
	}
	return CUDA_SUCCESS;
}
