#include "core/release.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/process.h"

/*
 * NVIDIA's drivers: the first one with each CUDA version, newest last; the library has the functions of that CUDA
 * version.
 */
static const struct release {
	int cuda;
	const char *driver;
} releases[] = {
#include "core/zz_releases.h"
};
enum { RELEASES = sizeof releases / sizeof *releases };

enum { DRIVER_TEXT = 16 };

static struct {
	int cuda; /* 0: no version is set */
	char driver[DRIVER_TEXT];
	int driverCuda;
} wanted;

static int named_cuda(const char *text)
{
	int major = 0, minor = 0, rest = 0;
	if (sscanf(text, "%2d.%1d%n", &major, &minor, &rest) != 2 || text[rest])
		return 0;
	int version = 1000 * major + 10 * minor;
	return version >= releases[0].cuda && version <= releases[RELEASES - 1].cuda ? version : 0;
}

/* Returns the CUDA version of the newest release with a branch that isn't newer than the driver's. */
static int cuda_of(const char *driver)
{
	int branch = 0, minor = 0, patch = 0, rest = 0, of = 0;
	size_t digits = strspn(driver, "0123456789.");
	if (driver[digits] || digits >= DRIVER_TEXT)
		return 0;
	if (!(sscanf(driver, "%3d.%3d.%3d%n", &branch, &minor, &patch, &rest) == 3 && !driver[rest])) {
		rest = 0;
		if (sscanf(driver, "%3d.%3d%n", &branch, &minor, &rest) != 2 || driver[rest])
			return 0;
	}
	for (int i = 0; i < RELEASES && atoi(releases[i].driver) <= branch; i++)
		of = releases[i].cuda;
	return of;
}

static void read_wanted(void)
{
	const char *cuda = getenv("PEGASUS_CUDA"), *driver = getenv("PEGASUS_DRIVER");
	if (cuda && *cuda && !(wanted.cuda = named_cuda(cuda)))
		setting_ignored("PEGASUS_CUDA", cuda, "a CUDA from 11.0 to 13.0");
	if (!driver || !*driver)
		return;
	wanted.driverCuda = cuda_of(driver);
	if (wanted.driverCuda)
		snprintf(wanted.driver, sizeof wanted.driver, "%s", driver);
	else
		setting_ignored("PEGASUS_DRIVER", driver, "a driver from 450 on, such as 535.54.03");
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

int release_cuda(int host)
{
	pthread_once(&once, read_wanted);
	return wanted.cuda ? wanted.cuda : wanted.driverCuda ? wanted.driverCuda : host;
}

const char *release_driver(int cuda)
{
	pthread_once(&once, read_wanted);
	if (*wanted.driver)
		return wanted.driver;
	int i = RELEASES - 1;
	while (i > 0 && releases[i].cuda > cuda)
		i--;
	return releases[i].driver;
}
