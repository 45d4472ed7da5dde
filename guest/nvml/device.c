/* Constant properties of a device. */
#include <stdio.h>
#include <string.h>

#include "nvml.h"

#include "core/device.h"

EXPORT nvml nvmlDeviceGetName(nvml_device handle, char *out, unsigned int room)
{
	int d;
	nvml r = device_of(handle, out, &d);
	return r == NVML_SUCCESS ? give_text(out, room, device_at(d)->name) : r;
}

EXPORT nvml nvmlDeviceGetIndex(nvml_device handle, unsigned int *index)
{
	int d;
	nvml r = device_of(handle, index, &d);
	if (r == NVML_SUCCESS)
		*index = (unsigned int)d;
	return r;
}

/* There is no file /dev/nvidiaN, by which tools number devices. */
EXPORT nvml nvmlDeviceGetMinorNumber(nvml_device handle, unsigned int *minor) { return nvmlDeviceGetIndex(handle, minor); }

EXPORT nvml nvmlDeviceGetPciInfo_v3(nvml_device handle, struct nvml_pci *pci)
{
	int d;
	nvml r = device_of(handle, pci, &d);
	if (r != NVML_SUCCESS)
		return r;
	struct nvml_pci p = {
		.domain = (unsigned int)device_attribute(d, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
		.bus = (unsigned int)device_attribute(d, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
		.device = (unsigned int)device_attribute(d, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
		.pciDevice = 0x10de, /* NVIDIA's vendor id, with an unassigned device id */
	};
	snprintf(p.legacy, sizeof p.legacy, "%04X:%02X:%02X.0", p.domain & 0xffff, p.bus & 0xff, p.device & 0xff);
	snprintf(p.id, sizeof p.id, "%08X:%02X:%02X.0", p.domain, p.bus & 0xff, p.device & 0xff);
	*pci = p;
	return NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetPciInfo_v2(nvml_device handle, struct nvml_pci *pci) { return nvmlDeviceGetPciInfo_v3(handle, pci); }

/* The first version's structure ends before the long bus id. */
EXPORT nvml nvmlDeviceGetPciInfo(nvml_device handle, struct nvml_pci *pci)
{
	struct nvml_pci p;
	nvml r = nvmlDeviceGetPciInfo_v3(handle, pci ? &p : NULL);
	if (r == NVML_SUCCESS)
		memcpy(pci, &p, offsetof(struct nvml_pci, id));
	return r;
}

EXPORT nvml nvmlDeviceGetPciInfoExt(nvml_device handle, struct nvml_pci_ext *pci)
{
	struct nvml_pci p;
	nvml r = nvmlDeviceGetPciInfo_v3(handle, pci ? &p : NULL);
	if (r == NVML_SUCCESS && pci->version != NVML_VERSIONED(*pci, 1))
		r = NVML_VERSION_MISMATCH;
	if (r != NVML_SUCCESS)
		return r;
	*pci = (struct nvml_pci_ext){
		.version = pci->version, .domain = p.domain, .bus = p.bus, .device = p.device, .pciDevice = p.pciDevice,
		.baseClass = 3, .subClass = 2, /* a 3D controller, for computing */
	};
	memcpy(pci->id, p.id, sizeof pci->id);
	return NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetCudaComputeCapability(nvml_device handle, int *major, int *minor)
{
	int d;
	nvml r = device_of(handle, minor ? major : NULL, &d);
	if (r != NVML_SUCCESS)
		return r;
	*major = device_attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = device_attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return NVML_SUCCESS;
}

/* Returns NVML's architecture number of a compute capability. */
static int architecture(int capability)
{
	static const struct { int from, name; } architectures[] = {{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}, {50, 3}, {30, 2}};
	for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
		if (capability >= architectures[i].from)
			return architectures[i].name;
	return VALUE_UNKNOWN;
}

/* A getter of one number that never changes. */
#define NUMBER(name, value) \
	EXPORT nvml name(nvml_device handle, unsigned int *out) \
	{ \
		int d; \
		nvml r = device_of(handle, out, &d); \
		if (r == NVML_SUCCESS) \
			*out = (unsigned int)(value); \
		return r; \
	}
#define MHZ(attribute) (device_attribute(d, attribute) / 1000)

NUMBER(nvmlDeviceGetBrand, BRAND_NVIDIA)
NUMBER(nvmlDeviceGetArchitecture, architecture(device_capability(d)))
NUMBER(nvmlDeviceGetComputeMode, device_attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE))
NUMBER(nvmlDeviceGetMemoryBusWidth, device_attribute(d, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH))
NUMBER(nvmlDeviceGetPersistenceMode, 1)
NUMBER(nvmlDeviceGetDisplayMode, 0)
NUMBER(nvmlDeviceGetDisplayActive, 0)
NUMBER(nvmlDeviceGetBoardId, d)
NUMBER(nvmlDeviceGetMultiGpuBoard, 0)

/* Clocks: 0 graphics, 1 SM, 2 memory. */
EXPORT nvml nvmlDeviceGetMaxClockInfo(nvml_device handle, int type, unsigned int *mhz)
{
	int d;
	nvml r = device_of(handle, mhz, &d);
	if (r == NVML_SUCCESS && (type < 0 || type > 2))
		r = type == 3 ? NVML_NOT_SUPPORTED : NVML_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*mhz = (unsigned int)MHZ(type == 2 ? CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE : CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
	return r;
}

/* Getters of two numbers, or of nothing: a device has no instances. */
EXPORT nvml nvmlDeviceGetMigMode(nvml_device handle, unsigned int *current, unsigned int *pending)
{
	int d;
	(void)pending;
	nvml r = device_of(handle, current, &d);
	return r == NVML_SUCCESS ? NVML_NOT_SUPPORTED : r;
}

EXPORT nvml nvmlDeviceIsMigDeviceHandle(nvml_device handle, unsigned int *is)
{
	int d;
	nvml r = device_of(handle, is, &d);
	if (r == NVML_SUCCESS)
		*is = 0;
	return r;
}

EXPORT nvml nvmlDeviceOnSameBoard(nvml_device one, nvml_device other, int *same)
{
	int a, b;
	nvml r = device_of(one, same, &a);
	if (r == NVML_SUCCESS)
		r = device_of(other, same, &b);
	if (r == NVML_SUCCESS)
		*same = a == b;
	return r;
}

/* --- links: a device has none; these functions check their outputs before they return an error --- */

static nvml nothing(nvml_device handle, const void *out)
{
	int d;
	nvml r = device_of(handle, out, &d);
	return r == NVML_SUCCESS ? NVML_NOT_SUPPORTED : r;
}

/* A link query: a device has no links to others. */
#define NO_LINK(name) \
	EXPORT nvml name(nvml_device handle, unsigned int link, void *out) \
	{ \
		(void)link; \
		return nothing(handle, out); \
	}
NO_LINK(nvmlDeviceGetNvLinkState)
NO_LINK(nvmlDeviceGetNvLinkVersion)
NO_LINK(nvmlDeviceGetNvLinkRemoteDeviceType)
NO_LINK(nvmlDeviceGetNvLinkRemotePciInfo)
NO_LINK(nvmlDeviceGetNvLinkRemotePciInfo_v2)

EXPORT nvml nvmlDeviceGetNvLinkCapability(nvml_device handle, unsigned int link, int capability, unsigned int *out)
{
	(void)link;
	(void)capability;
	return nothing(handle, out);
}

EXPORT nvml nvmlDeviceGetP2PStatus(nvml_device one, nvml_device other, int index, int *status)
{
	(void)index;
	nvml r = nothing(other, status);
	return r == NVML_NOT_SUPPORTED ? nothing(one, status) : r;
}

EXPORT nvml nvmlDeviceGetFieldValues(nvml_device handle, int count, void *values)
{
	nvml r = nothing(handle, values);
	return r == NVML_NOT_SUPPORTED && count <= 0 ? NVML_INVALID_ARGUMENT : r;
}

EXPORT nvml nvmlDeviceGetGpuFabricInfo(nvml_device handle, void *out) { return nothing(handle, out); }
EXPORT nvml nvmlDeviceGetGpuFabricInfoV(nvml_device handle, void *out) { return nothing(handle, out); }

/* Undocumented function tables. */
EXPORT nvml nvmlInternalGetExportTable(const void **table, const void *id)
{
	(void)id;
	if (!table)
		return NVML_INVALID_ARGUMENT;
	*table = NULL;
	return NVML_FUNCTION_NOT_FOUND;
}
