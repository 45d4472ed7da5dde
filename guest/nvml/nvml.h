/*
 * The part of NVML's ABI that the library implements: numbers and layouts as in NVIDIA's nvml.h, and declarations
 * shared between its files.
 */
#ifndef PEGASUS_NVML_H
#define PEGASUS_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum nvml_result {
	NVML_SUCCESS = 0,
	NVML_UNINITIALIZED = 1,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NOT_SUPPORTED = 3,
	NVML_NO_PERMISSION = 4,
	NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7,
	NVML_DRIVER_NOT_LOADED = 9,
	NVML_TIMEOUT = 10,
	NVML_FUNCTION_NOT_FOUND = 13,
	NVML_GPU_IS_LOST = 15,
	NVML_MEMORY = 20,
	NVML_INSUFFICIENT_RESOURCES = 23,
	NVML_VERSION_MISMATCH = 25,
	NVML_UNKNOWN = 999,
};

enum { NO_INSTANCE = -1, BRAND_NVIDIA = 14, VALUE_UNKNOWN = -1 };

struct nvml_pci {
	char legacy[16];
	unsigned int domain, bus, device, pciDevice, pciSubsystem;
	char id[32];
};
struct nvml_memory {
	unsigned long long total, free, used;
};
struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};
struct nvml_utilization {
	unsigned int gpu, memory;
};
struct nvml_process_v1 {
	unsigned int pid;
	unsigned long long memory;
};
struct nvml_process {
	unsigned int pid;
	unsigned long long memory;
	unsigned int gpuInstance, computeInstance;
};

struct nvml_process_use {
	unsigned int pid;
	unsigned long long time;
	unsigned int sm, memory, encoder, decoder;
};
struct nvml_process_use_v1 {
	unsigned long long time;
	unsigned int pid, sm, memory, encoder, decoder, jpeg, flow;
};
struct nvml_processes_use {
	unsigned int version, count;
	unsigned long long since;
	struct nvml_process_use_v1 *list;
};
struct nvml_process_detail {
	unsigned int pid;
	unsigned long long memory;
	unsigned int gpuInstance, computeInstance;
	unsigned long long protectedMemory;
};
struct nvml_process_list {
	unsigned int version, mode, count;
	struct nvml_process_detail *list;
};
struct nvml_pci_ext {
	unsigned int version, domain, bus, device, pciDevice, pciSubsystem, baseClass, subClass;
	char id[32];
};
struct nvml_uuid {
	unsigned int version, type;
	union {
		char text[41];
		uint8_t bytes[16];
	} value;
};
enum { UUID_TEXT = 1, UUID_BYTES = 2 };
enum { MODE_COMPUTE = 0, MODE_GRAPHICS = 1, MODE_MPS = 2 };

#define NVML_VERSIONED(type, version) ((unsigned int)(sizeof(type) | (version) << 24))
_Static_assert(sizeof(struct nvml_pci) == 68 && offsetof(struct nvml_pci, id) == 36, "nvmlPciInfo_t");
_Static_assert(sizeof(struct nvml_memory) == 24 && sizeof(struct nvml_memory_v2) == 40, "nvmlMemory_t");
_Static_assert(sizeof(struct nvml_process_v1) == 16 && sizeof(struct nvml_process) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(struct nvml_process_use) == 32 && sizeof(struct nvml_process_use_v1) == 40, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(struct nvml_processes_use) == 24 && sizeof(struct nvml_process_list) == 24, "nvmlProcessesUtilizationInfo_t");
_Static_assert(sizeof(struct nvml_process_detail) == 32 && sizeof(struct nvml_pci_ext) == 64, "nvmlProcessDetail_v1_t");
_Static_assert(sizeof(struct nvml_uuid) == 52, "nvmlUUID_t");

typedef int nvml; /* nvmlReturn_t */
typedef struct nvml_device *nvml_device; /* index + 1 */

/* Sets *device to the device of a handle; fails if there are no devices or the handle is invalid. */
nvml device_of(nvml_device handle, const void *out, int *device);
/*
 * Result of a function without an implementation: NVML_NOT_SUPPORTED, unless NVML is not initialised or the handle is
 * not a device's.
 */
nvml refuse(void);
nvml refuse_device(nvml_device handle);
/* Copies text; a buffer that is too small stays unchanged. */
nvml give_text(char *out, unsigned int room, const char *text);

enum { PROCESSES_MOST = 256 };

/* A domain's use of its accelerator. */
struct usage {
	uint64_t memoryUsed, memoryQuota;
	int64_t now, busy;
	uint32_t processes;
	struct usage_process {
		uint32_t pid, reserved;
		uint64_t memory;
		int64_t busy;
	} process[PROCESSES_MOST];
};
nvml usage_ask(struct usage *u);
/* Takes the first sample, to which later ones are compared. */
void usage_begin(void);

#endif
