/*
 * libnvidia-ml.so.1: NVIDIA's library for tools that monitor GPUs, restricted to a domain's view. A tool sees its
 * domain's data: the quota as the device's memory, the domain's use as the device's, the domain's processes. It exports
 * every symbol of cuda/spec/nvml.json, since tools crash or give up the device if one is missing; symbols without an
 * implementation here are generated, and return NVML_NOT_SUPPORTED.
 *
 * The library has a connection of its own, by the same code as libcuda.so.1, and a worker of its own, since programs
 * call NVML first so that they can fork before they use CUDA.
 *
 * This file has initialisation, shutdown and calls without a device.
 */
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/connect.h"
#include "core/device.h"
#include "core/release.h"
#include "core/zz_impl.h"

enum { HANDLES_FROM = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int references;

static bool begun(void)
{
	pthread_mutex_lock(&lock);
	bool b = references > 0;
	pthread_mutex_unlock(&lock);
	return b;
}

EXPORT nvml nvmlInitWithFlags(unsigned int flags)
{
	(void)flags; /* no device can be attached later */
	device_show_all();
	CUresult r = process_start();
	if (r != CUDA_SUCCESS && device_count() == 0)
		return r == CUDA_ERROR_OUT_OF_MEMORY ? NVML_MEMORY : NVML_DRIVER_NOT_LOADED;
	pthread_mutex_lock(&lock);
	bool first = references++ == 0;
	pthread_mutex_unlock(&lock);
	if (first)
		usage_begin();
	return NVML_SUCCESS;
}

EXPORT nvml nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvml nvmlInit(void) { return nvmlInitWithFlags(0); }

/* The connection stays open: programs that shut down often initialise again. */
EXPORT nvml nvmlShutdown(void)
{
	pthread_mutex_lock(&lock);
	nvml r = references > 0 ? NVML_SUCCESS : NVML_UNINITIALIZED;
	references -= references > 0;
	pthread_mutex_unlock(&lock);
	return r;
}

nvml device_of(nvml_device handle, const void *out, int *device)
{
	if (!begun())
		return NVML_UNINITIALIZED;
	uintptr_t index = (uintptr_t)handle - HANDLES_FROM;
	if (!out || index >= (uintptr_t)device_count())
		return NVML_INVALID_ARGUMENT;
	*device = (int)index;
	return NVML_SUCCESS;
}

nvml refuse(void) { return begun() ? NVML_NOT_SUPPORTED : NVML_UNINITIALIZED; }

nvml refuse_device(nvml_device handle)
{
	int d;
	nvml r = device_of(handle, &d, &d);
	return r == NVML_SUCCESS ? NVML_NOT_SUPPORTED : r;
}

nvml give_text(char *out, unsigned int room, const char *text)
{
	if (!out)
		return NVML_INVALID_ARGUMENT;
	if (strlen(text) >= room)
		return NVML_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

/* --- the system --- */

static nvml give_system_text(char *out, unsigned int room, const char *text)
{
	return begun() ? give_text(out, room, text) : NVML_UNINITIALIZED;
}

EXPORT nvml nvmlSystemGetDriverVersion(char *out, unsigned int room)
{
	return give_system_text(out, room, release_driver(device_driver_version()));
}

/* The library's version is the driver's, behind the API's version, which is CUDA's major version. */
EXPORT nvml nvmlSystemGetNVMLVersion(char *out, unsigned int room)
{
	char text[32];
	int cuda = device_driver_version();
	snprintf(text, sizeof text, "%d.%s", cuda / 1000, release_driver(cuda));
	return give_system_text(out, room, text);
}

EXPORT nvml nvmlSystemGetCudaDriverVersion(int *version)
{
	if (!begun())
		return NVML_UNINITIALIZED;
	if (!version)
		return NVML_INVALID_ARGUMENT;
	*version = device_driver_version();
	return NVML_SUCCESS;
}

EXPORT nvml nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* The name as in /proc, which is readable for any user with access to the process. */
EXPORT nvml nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int room)
{
	char path[64], name[4096];
	if (!begun())
		return NVML_UNINITIALIZED;
	if (!out || room == 0)
		return NVML_INVALID_ARGUMENT;
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(name, 1, sizeof name - 1, f) : 0;
	if (f)
		fclose(f);
	if (n == 0)
		return NVML_NOT_FOUND;
	name[n] = 0;
	snprintf(out, room, "%s", name);
	return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvml result)
{
	static const struct { nvml result; const char *text; } texts[] = {
		{NVML_SUCCESS, "Success"}, {NVML_UNINITIALIZED, "Uninitialized"}, {NVML_INVALID_ARGUMENT, "Invalid Argument"},
		{NVML_NOT_SUPPORTED, "Not Supported"}, {NVML_NO_PERMISSION, "Insufficient Permissions"}, {5, "Already Initialized"},
		{NVML_NOT_FOUND, "Not Found"}, {NVML_INSUFFICIENT_SIZE, "Insufficient Size"}, {8, "Insufficient External Power"},
		{NVML_DRIVER_NOT_LOADED, "Driver Not Loaded"}, {NVML_TIMEOUT, "Timeout"}, {11, "Interrupt Request Issue"},
		{12, "NVML Shared Library Not Found"}, {NVML_FUNCTION_NOT_FOUND, "Function Not Found"}, {14, "Corrupted infoROM"},
		{NVML_GPU_IS_LOST, "GPU is lost"}, {16, "GPU requires reset"}, {17, "GPU access blocked by the operating system"},
		{18, "Driver/library version mismatch"}, {19, "In use by another client"}, {NVML_MEMORY, "Insufficient Memory"}, {21, "No data"},
		{22, "vGPU ECC not supported"}, {NVML_INSUFFICIENT_RESOURCES, "Insufficient Resources"}, {24, "Invalid Frequency"},
		{NVML_VERSION_MISMATCH, "Argument version mismatch"}, {26, "Requested functionality has been deprecated"},
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (texts[i].result == result)
			return texts[i].text;
	return "Unknown Error";
}

/* --- devices --- */

static nvml give_handle(int device, nvml_device *out)
{
	*out = (nvml_device)(uintptr_t)(device + HANDLES_FROM);
	return NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (!begun())
		return NVML_UNINITIALIZED;
	if (!count)
		return NVML_INVALID_ARGUMENT;
	*count = (unsigned int)device_count();
	return NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvml nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device)
{
	if (!begun())
		return NVML_UNINITIALIZED;
	return device && index < (unsigned int)device_count() ? give_handle((int)index, device) : NVML_INVALID_ARGUMENT;
}

EXPORT nvml nvmlDeviceGetHandleByIndex(unsigned int index, nvml_device *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvml nvmlDeviceGetUUID(nvml_device handle, char *out, unsigned int room)
{
	int d;
	char text[41];
	nvml r = device_of(handle, out, &d);
	if (r != NVML_SUCCESS)
		return r;
	const uint8_t *u = device_at(d)->uuid;
	snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
		u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	return give_text(out, room, text);
}

EXPORT nvml nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
	char text[41];
	if (!begun())
		return NVML_UNINITIALIZED;
	if (!uuid || !device)
		return NVML_INVALID_ARGUMENT;
	for (int i = 0; i < device_count(); i++)
		if (give_handle(i, device), nvmlDeviceGetUUID(*device, text, sizeof text) == NVML_SUCCESS && strcmp(text, uuid) == 0)
			return NVML_SUCCESS;
	*device = NULL;
	return NVML_NOT_FOUND;
}

/* Accepts the text and the binary form. */
EXPORT nvml nvmlDeviceGetHandleByUUIDV(const struct nvml_uuid *uuid, nvml_device *device)
{
	char text[sizeof uuid->value.text + 1] = "";
	if (!begun())
		return NVML_UNINITIALIZED;
	if (!uuid || !device)
		return NVML_INVALID_ARGUMENT;
	if (uuid->version != NVML_VERSIONED(*uuid, 1))
		return NVML_VERSION_MISMATCH;
	if (uuid->type == UUID_TEXT)
		return memcpy(text, uuid->value.text, sizeof uuid->value.text), nvmlDeviceGetHandleByUUID(text, device);
	if (uuid->type != UUID_BYTES)
		return NVML_INVALID_ARGUMENT;
	for (int i = 0; i < device_count(); i++)
		if (memcmp(device_at(i)->uuid, uuid->value.bytes, sizeof uuid->value.bytes) == 0)
			return give_handle(i, device);
	return NVML_NOT_FOUND;
}

EXPORT nvml nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *device)
{
	CUdevice d;
	if (!begun())
		return NVML_UNINITIALIZED;
	if (!id || !device)
		return NVML_INVALID_ARGUMENT;
	CUresult r = pg_cuDeviceGetByPCIBusId(&d, id);
	return r == CUDA_SUCCESS ? give_handle(d, device) : r == CUDA_ERROR_INVALID_VALUE ? NVML_INVALID_ARGUMENT : NVML_NOT_FOUND;
}

EXPORT nvml nvmlDeviceGetHandleByPciBusId(const char *id, nvml_device *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}
