#include "release.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

/* NVIDIA's drivers: the first of each branch that came with a new CUDA. Newest last; the library has the functions of that CUDA. */
static const struct release {
	int cuda;
	const char *driver;
} releases[] = {
	{11000, "450.51.05"}, {11010, "455.23.05"}, {11020, "460.27.04"}, {11030, "465.19.01"}, {11040, "470.42.01"}, {11050, "495.29.05"},
	{11060, "510.39.01"}, {11070, "515.43.04"}, {11080, "520.61.05"}, {12000, "525.60.13"}, {12010, "530.30.02"}, {12020, "535.54.03"},
	{12030, "545.23.06"}, {12040, "550.54.14"}, {12050, "555.42.02"}, {12060, "560.28.03"}, {12070, "565.57.01"}, {12080, "570.86.10"},
	{12090, "575.51.03"}, {13000, "580.65.06"},
};
enum { RELEASES = sizeof releases / sizeof *releases };

enum { DRIVER_TEXT = 16 };

static struct {
	int cuda; /* 0: none is named */
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

/* The CUDA of the newest release whose branch isn't newer than the driver's. */
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
		log_at(LOG_ERROR, "PEGASUS_CUDA=%s: no CUDA from 11.0 to 13.0; ignored", cuda);
	if (!driver || !*driver)
		return;
	wanted.driverCuda = cuda_of(driver);
	if (wanted.driverCuda)
		snprintf(wanted.driver, sizeof wanted.driver, "%s", driver);
	else
		log_at(LOG_ERROR, "PEGASUS_DRIVER=%s: no driver from 450 on, such as 535.54.03; ignored", driver);
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
