/* A monitoring library (NVML) for tests, with one device. */
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct device { int begun; };
static struct device only;

EXPORT int nvmlInit_v2(void)
{
	only.begun++;
	return 0;
}

EXPORT int nvmlShutdown(void)
{
	only.begun--;
	return 0;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **d)
{
	*d = &only;
	return only.begun && strcmp(uuid, "GPU-known") == 0 ? 0 : 6;
}

EXPORT int nvmlDeviceGetMemoryInfo(struct device *d, unsigned long long sizes[3])
{
	sizes[0] = 8ull << 30;
	sizes[1] = 5ull << 30;
	sizes[2] = 3ull << 30;
	return d->begun ? 0 : 1;
}

EXPORT int nvmlDeviceGetUtilizationRates(struct device *d, unsigned percent[2])
{
	percent[0] = 41;
	percent[1] = 7;
	return d->begun ? 0 : 1;
}

EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(struct device *d, unsigned *n)
{
	*n = 5;
	return d->begun ? 0 : 1;
}

EXPORT int nvmlDeviceGetMaxPcieLinkWidth(struct device *d, unsigned *n)
{
	*n = 16;
	return d->begun ? 0 : 1;
}
