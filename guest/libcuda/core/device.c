#include "core/device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/arena.h"
#include "core/release.h"
#include "core/ring.h"
#include "core/zz_wire.h"

/* The head of the snapshot; device records follow. */
struct snapshot_head {
	uint32_t version, deviceCount, driverVersion, attributeCount;
};

static int count, driverVersion;
static struct device_record devices[DEVICES_MOST];

int device_count(void) { return count; }

static atomic_bool every;
void device_show_all(void) { every = true; }

int device_driver_version(void)
{
	/* Permitted before cuInit: returns the version that the library implements, which the host may lower. */
	return release_cuda(driverVersion ? driverVersion : CUDA_VERSION);
}

const struct device_record *device_at(int device) { return &devices[device]; }

/* Reports whether an entry of CUDA_VISIBLE_DEVICES names the process's device: a number that begins with 0, or the UUID's beginning. */
static bool names_device(const char *entry, size_t length, const char *uuid)
{
	if (length > strlen("GPU-") && strncasecmp(entry, uuid, length) == 0)
		return true;
	char *end;
	long number = strtol(entry, &end, 10); /* as with NVIDIA's driver, text behind the digits is ignored */
	return end != entry && number == 0;
}

/*
 * Reports whether CUDA_VISIBLE_DEVICES leaves the process's device visible. NVIDIA's driver ends the list at the first
 * entry that names no device, and shows no device if the list names one twice.
 */
static bool is_visible(const uint8_t u[16])
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	if (!list)
		return true;
	char uuid[48];
	snprintf(uuid, sizeof uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
		u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	int times = 0;
	for (const char *entry = list;; entry++) {
		entry += strspn(entry, " \t");
		size_t length = strcspn(entry, ", \t");
		if (!names_device(entry, length, uuid))
			break;
		times++;
		entry += strcspn(entry, ",");
		if (!*entry)
			break;
	}
	if (times == 1)
		return true;
	static atomic_bool reported;
	char first = list[strspn(list, " \t")];
	bool meant = !first || first == ',' || strtol(list, NULL, 10) < 0; /* an empty entry and -1 are meant to hide it */
	if (!meant && !atomic_exchange(&reported, true))
		log_at(LOG_ERROR, "CUDA_VISIBLE_DEVICES=%.128s%s: the process sees no device; its only one is 0, %s", list,
			times > 1 ? " names a device twice" : "", uuid);
	return false;
}

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
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1; /* implemented in the guest: see work/pool.h */
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] =
			devices[i].attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
		/* Registered memory has a separate device address: see work/hostmap.h. */
		bool mapped = devices[i].attribute[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY];
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = mapped;
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] = mapped;
		devices[i].attribute[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 0;
	}
	count = head.deviceCount == 1 && !every && !is_visible(devices[0].uuid) ? 0 : (int)head.deviceCount;
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
