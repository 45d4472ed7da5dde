/* Device properties. cuInit fetches one snapshot, which serves all device queries. */
#ifndef PEGASUS_CORE_DEVICE_H
#define PEGASUS_CORE_DEVICE_H

#include "core/process.h"

enum { DEVICES_MOST = 16, DEVICE_ATTRIBUTES = 160 };

/* One device's record in the snapshot, in the host's format. */
struct device_record {
	char name[128];
	uint8_t uuid[16];
	uint64_t totalMem;
	char pciBusId[16];
	int32_t attribute[DEVICE_ATTRIBUTES]; /* index: CUdevice_attribute; index 0 is no attribute and holds the HABIT_ flags */
};
_Static_assert(sizeof(struct device_record) == 128 + 16 + 8 + 16 + 4 * DEVICE_ATTRIBUTES, "device record");

/* Fetches the snapshot from the worker. */
CUresult device_snapshot(void);

int device_count(void);
/* Makes devices visible that CUDA_VISIBLE_DEVICES hides, which NVML ignores; called before the first connection. */
void device_show_all(void);
int device_driver_version(void);
/* Returns the record of a device, which must exist. */
const struct device_record *device_at(int device);
static inline bool device_exists(int device) { return device >= 0 && device < device_count(); }
static inline int device_attribute(int device, CUdevice_attribute a)
{
	return (unsigned)a < DEVICE_ATTRIBUTES ? device_at(device)->attribute[a] : 0;
}
/* Returns 10 * major + minor of the compute capability. */
static inline int device_capability(int device)
{
	return 10 * device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
		device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}
enum { HABIT_MACHINE_CODE = 1, HABIT_HANDLES = 2 };
static inline bool device_takes_code(int device) { return device_at(device)->attribute[0] & HABIT_MACHINE_CODE; }
/* Reports whether the device chooses the handles of texture objects. */
static inline bool device_gives_handles(int device) { return device_at(device)->attribute[0] & HABIT_HANDLES; }

#endif
