#include "monitor.h"

#include <dlfcn.h>

typedef struct nvmlDevice_st *device;

struct memory {
	unsigned long long total, free, used;
};

struct utilization {
	unsigned gpu, memory;
};

/* Declares a function of the library's and finds it. */
#define FIND(f, ...) int (*f)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(lib, #f)

static void look(void *lib, device d, struct sight *out)
{
	FIND(nvmlDeviceGetMemoryInfo, device, struct memory *);
	FIND(nvmlDeviceGetUtilizationRates, device, struct utilization *);
	FIND(nvmlDeviceGetMaxPcieLinkGeneration, device, unsigned *);
	FIND(nvmlDeviceGetMaxPcieLinkWidth, device, unsigned *);
	struct memory m;
	struct utilization u;
	unsigned n;
	if (nvmlDeviceGetMemoryInfo && nvmlDeviceGetMemoryInfo(d, &m) == 0)
		out->used = m.used;
	if (nvmlDeviceGetUtilizationRates && nvmlDeviceGetUtilizationRates(d, &u) == 0)
		out->busy = u.gpu;
	if (nvmlDeviceGetMaxPcieLinkGeneration && nvmlDeviceGetMaxPcieLinkGeneration(d, &n) == 0)
		out->generation = n;
	if (nvmlDeviceGetMaxPcieLinkWidth && nvmlDeviceGetMaxPcieLinkWidth(d, &n) == 0)
		out->lanes = n;
}

int watch_device(const char *library, const char *uuid, struct sight *out)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* stays: it may have threads */
	device d;
	if (!lib)
		return 0;
	FIND(nvmlInit_v2, void);
	FIND(nvmlShutdown, void);
	FIND(nvmlDeviceGetHandleByUUID, const char *, device *);
	if (!nvmlInit_v2 || !nvmlShutdown || !nvmlDeviceGetHandleByUUID || nvmlInit_v2() != 0)
		return 0;
	int found = nvmlDeviceGetHandleByUUID(uuid, &d) == 0;
	if (found)
		look(lib, d, out);
	nvmlShutdown();
	return found;
}
