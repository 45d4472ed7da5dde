#include "core/device.h"

#include <stdio.h>
#include <string.h>

#include "core/arena.h"
#include "object/array.h"
#include "core/release.h"
#include "core/ring.h"
#include "core/zz_impl.h"
#include "core/zz_wire.h"

/* The head of the snapshot; device records follow. */
struct snapshot_head {
	uint32_t version, deviceCount, driverVersion, attributeCount;
};

static int count, driverVersion;
static struct device_record devices[DEVICES_MOST];

int device_count(void) { return count; }

int device_driver_version(void)
{
	/* Permitted before cuInit: returns the version that the library implements, which the host may lower. */
	return release_cuda(driverVersion ? driverVersion : CUDA_VERSION);
}

const struct device_record *device_at(int device) { return &devices[device]; }

static CUresult read_snapshot(const uint8_t *bytes, uint64_t length)
{
	struct snapshot_head head;
	if (length < sizeof head)
		return CUDA_ERROR_UNKNOWN;
	memcpy(&head, bytes, sizeof head);
	if (head.version != 1 || head.attributeCount != DEVICE_ATTRIBUTES || head.deviceCount > DEVICES_MOST ||
		length - sizeof head < head.deviceCount * sizeof devices[0])
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	memcpy(devices, bytes + sizeof head, head.deviceCount * sizeof devices[0]);
	for (uint32_t i = 0; i < head.deviceCount; i++) {
		devices[i].name[sizeof devices[i].name - 1] = 0;
		devices[i].pciBusId[sizeof devices[i].pciBusId - 1] = 0;
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1; /* implemented in the guest: see pool.h */
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] =
			devices[i].attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
		/* Registered memory has a separate device address: see hostmap.h. */
		bool mapped = devices[i].attribute[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY];
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = mapped;
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] = mapped;
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 0;
	}
	count = (int)head.deviceCount;
	driverVersion = (int)head.driverVersion;
	return count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult device_snapshot(void)
{
	uint64_t offset, capacity = sizeof(struct snapshot_head) + sizeof devices;
	CUresult r = arena_take(capacity, &offset);
	if (r != CUDA_SUCCESS)
		return r;
	struct device_info_args args = {.arenaOffset = offset, .capacity = capacity};
	struct device_info_result answer;
	struct packet p = {.op = OP_DEVICE_INFO, .fixed = &args, .fixedBytes = sizeof args};
	r = ring_call(&p, &answer, sizeof answer);
	if (r == CUDA_SUCCESS)
		r = answer.length <= capacity ? read_snapshot(arena_at(offset), answer.length) : CUDA_ERROR_UNKNOWN;
	arena_give(offset, capacity);
	return r;
}

CUresult pg_cuInit(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return process_start();
}

CUresult pg_cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = device_driver_version();
	return CUDA_SUCCESS;
}

CUresult pg_cuDeviceGetCount(int *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = count;
	return CUDA_SUCCESS;
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
	return r == CUDA_SUCCESS ? copy_string(name, length, devices[device].name) : r;
}

CUresult pg_cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	CUresult r = ask(id, device);
	return r == CUDA_SUCCESS ? copy_string(id, length, devices[device].pciBusId) : r;
}

CUresult pg_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	CUresult r = ask(value, device);
	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned)attribute == 0 || (unsigned)attribute >= DEVICE_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	*value = device_attribute(device, attribute);
	return CUDA_SUCCESS;
}

CUresult pg_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult r = ask(bytes, device);
	if (r == CUDA_SUCCESS)
		*bytes = devices[device].totalMem;
	return r;
}

CUresult pg_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	CUresult r = ask(uuid, device);
	if (r == CUDA_SUCCESS)
		memcpy(uuid, devices[device].uuid, sizeof devices[device].uuid);
	return r;
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
	for (int i = 0; i < count; i++)
		if (parse_bus_id(devices[i].pciBusId, have) && memcmp(want, have, sizeof want) == 0) {
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

CUresult pg_cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned int channels, CUdevice device)
{
	CUresult r = ask(width, device);
	if (r != CUDA_SUCCESS)
		return r;
	if (array_format_bytes(format) == 0 || (channels != 1 && channels != 2 && channels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	*width = (size_t)device_attribute(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
	return CUDA_SUCCESS;
}
