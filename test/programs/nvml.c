/*
 * A tool that monitors GPUs in the usual way: it loads NVIDIA's library by name and looks functions up. With "watch" it
 * prints the device's state, repeatedly, until its input ends; with "versions" the versions; else it checks properties
 * that hold in any domain.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

typedef struct device *device;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long memory; unsigned gpu, compute; };
struct use { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; };
struct detail { unsigned pid; unsigned long long memory; unsigned gpu, compute; unsigned long long protected; };
struct details { unsigned version, mode, count; struct detail *list; };
struct pci { char legacy[16]; unsigned domain, bus, device, pci_device, pci_sub; char id[32]; };

static void *library;

static void *look(const char *name)
{
	void *f = dlsym(library, name);
	if (!f) {
		fprintf(stderr, "no %s\n", name);
		exit(1);
	}
	return f;
}

#define CALL(name, ...) ((int (*)())look(name))(__VA_ARGS__)
#define OK(call) CLAIM((call) == 0)

static device gpu;

static void before_init(void)
{
	unsigned n;
	CLAIM(CALL("nvmlDeviceGetCount_v2", &n) == 1 && CALL("nvmlShutdown") == 1 && CALL("nvmlDeviceGetIndex", gpu, &n) == 1);
}

static void identify(void)
{
	char name[96], uuid[80], again[80], text[80], small[4] = "";
	unsigned n = 0;
	int cuda = 0, major, minor;
	struct pci pci;
	device same;
	OK(CALL("nvmlDeviceGetCount_v2", &n));
	CLAIM(n == 1);
	OK(CALL("nvmlDeviceGetHandleByIndex_v2", 0, &gpu));
	CLAIM(CALL("nvmlDeviceGetHandleByIndex_v2", 1, &same) == 2);
	OK(CALL("nvmlDeviceGetName", gpu, name, sizeof name));
	CLAIM(CALL("nvmlDeviceGetName", gpu, small, sizeof small) == 7 && !*small);
	OK(CALL("nvmlDeviceGetUUID", gpu, uuid, sizeof uuid));
	CLAIM(!strncmp(uuid, "GPU-", 4) && strlen(uuid) == 40);
	OK(CALL("nvmlDeviceGetHandleByUUID", uuid, &same));
	CLAIM(same == gpu && CALL("nvmlDeviceGetHandleByUUID", "GPU-0", &same) == 6);
	OK(CALL("nvmlDeviceGetPciInfo_v3", gpu, &pci));
	OK(CALL("nvmlDeviceGetHandleByPciBusId_v2", pci.id, &same));
	CLAIM(same == gpu);
	OK(CALL("nvmlDeviceGetHandleByPciBusId_v2", pci.legacy, &same));
	CLAIM(same == gpu && CALL("nvmlDeviceGetHandleByPciBusId_v2", "0000:77:00.0", &same) == 6);
	OK(CALL("nvmlSystemGetDriverVersion", text, sizeof text));
	CLAIM(atoi(text) > 0);
	OK(CALL("nvmlSystemGetNVMLVersion", text, sizeof text));
	OK(CALL("nvmlSystemGetCudaDriverVersion_v2", &cuda));
	OK(CALL("nvmlDeviceGetCudaComputeCapability", gpu, &major, &minor));

	CUdevice d;
	int version, capability;
	CUuuid id;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&d, 0));
	CHECK(cuDriverGetVersion(&version));
	CHECK(cuDeviceGetName(again, sizeof again, d));
	CLAIM(cuda == version && !strcmp(name, again));
	CHECK(cuDeviceGetAttribute(&capability, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d));
	CLAIM(major == capability);
	CHECK(cuDeviceGetUuid(&id, d));
	snprintf(text, sizeof text, "GPU-%02x%02x", (unsigned char)id.bytes[0], (unsigned char)id.bytes[1]);
	CLAIM(!strncmp(uuid, text, 8));
}

static void refuse(void)
{
	unsigned n, more;
	struct memory_v2 m = {.version = 1};
	CLAIM(CALL("nvmlDeviceGetMigMode", gpu, &n, &more) == 3);
	CLAIM(CALL("nvmlDeviceGetTemperature", gpu, 0, &n) == 3 && CALL("nvmlDeviceSetComputeMode", gpu, 0) == 3);
	CLAIM(CALL("nvmlDeviceGetMemoryInfo_v2", gpu, &m) == 25);
	CLAIM(CALL("nvmlDeviceGetName", (device)(uintptr_t)99, &m, 8) == 2 && CALL("nvmlDeviceGetMemoryInfo", gpu, NULL) == 2);
	const char *(*text)(int) = (const char *(*)(int))look("nvmlErrorString");
	CLAIM(!strcmp(text(0), "Success") && !strcmp(text(3), "Not Supported") && !strcmp(text(12345), "Unknown Error"));
}

/*
 * Utilisation of processes: the number first, with a zero-sized array; then each; then none newer than the last sample.
 */
static void shares(unsigned pid)
{
	struct use all[8];
	unsigned n = 0;
	usleep(150000);
	CLAIM(CALL("nvmlDeviceGetProcessUtilization", gpu, NULL, &n, 0ull) == 7 && n >= 1);
	n = 8;
	OK(CALL("nvmlDeviceGetProcessUtilization", gpu, all, &n, 0ull));
	CLAIM(n >= 1 && n <= 8 && all[n - 1].time > 1ull << 50 && all[n - 1].sm <= 100);
	unsigned found = 0;
	for (unsigned i = 0; i < n; i++)
		found += all[i].pid == pid;
	CLAIM(found == 1);
	CLAIM(CALL("nvmlDeviceGetProcessUtilization", gpu, all, &n, ~0ull) == 6);
}

/* Prints the versions that the library reports. */
static int versions(void)
{
	char driver[80], nvml[80];
	int cuda;
	OK(CALL("nvmlSystemGetDriverVersion", driver, sizeof driver));
	OK(CALL("nvmlSystemGetNVMLVersion", nvml, sizeof nvml));
	OK(CALL("nvmlSystemGetCudaDriverVersion", &cuda));
	printf("%s %s %d\n", driver, nvml, cuda);
	return 0;
}

/* The changes that a program's CUDA calls cause in the device's state. */
static void use(void)
{
	CUcontext c;
	CUdeviceptr p;
	struct memory before, after;
	struct memory_v2 v2 = {.version = sizeof v2 | 2 << 24};
	struct process all[8];
	unsigned n = 0;
	OK(CALL("nvmlDeviceGetMemoryInfo", gpu, &before));
	CLAIM(before.total == 64 << 20 && before.used + before.free == before.total);
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuMemAlloc(&p, 8 << 20));
	OK(CALL("nvmlDeviceGetMemoryInfo", gpu, &after));
	CLAIM(after.used == before.used + (8 << 20));
	OK(CALL("nvmlDeviceGetMemoryInfo_v2", gpu, &v2));
	CLAIM(v2.total == after.total && v2.used == after.used);
	/* The child that has ended is listed until its worker has ended. */
	for (int i = 0; i < 3000 && (n = 0, CALL("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &n, NULL)) == 7 && n > 1; i++)
		usleep(10000);
	n = 0;
	CLAIM(CALL("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &n, NULL) == 7 && n == 1);
	n = 8;
	OK(CALL("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &n, all));
	CLAIM(n == 1 && all[0].pid == (unsigned)getpid() && all[0].memory == 8 << 20);
	struct detail detail;
	struct details details = {.version = sizeof details | 1 << 24};
	CLAIM(CALL("nvmlDeviceGetRunningProcessDetailList", gpu, &details) == 7 && details.count == 1);
	details.list = &detail;
	OK(CALL("nvmlDeviceGetRunningProcessDetailList", gpu, &details));
	CLAIM(details.count == 1 && detail.pid == (unsigned)getpid() && detail.memory == 8 << 20);
	details.mode = 1;
	OK(CALL("nvmlDeviceGetRunningProcessDetailList", gpu, &details));
	CLAIM(details.count == 0);
	shares((unsigned)getpid());
	CHECK(cuCtxDestroy(c));
}

static unsigned share_of(unsigned pid)
{
	struct use all[64];
	unsigned n = 64;
	if (CALL("nvmlDeviceGetProcessUtilization", gpu, all, &n, 0ull) != 0)
		return 0;
	for (unsigned i = 0; i < n; i++)
		if (all[i].pid == pid)
			return all[i].sm;
	return 0;
}

static int watch(void)
{
	char line[64];
	struct memory m;
	struct { unsigned gpu, memory; } busy;
	struct process all[64];
	while (fgets(line, sizeof line, stdin)) {
		unsigned n = 64;
		OK(CALL("nvmlDeviceGetMemoryInfo", gpu, &m));
		OK(CALL("nvmlDeviceGetUtilizationRates", gpu, &busy));
		OK(CALL("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &n, all));
		printf("total %llu used %llu busy %u processes", m.total, m.used, busy.gpu);
		for (unsigned i = 0; i < n; i++)
			printf(" %u:%llu:%u", all[i].pid, all[i].memory, share_of(all[i].pid));
		printf("\n");
		fflush(stdout);
	}
	return 0;
}

/* Programs query the number of devices before they fork: their children use CUDA. */
static void fork_first(void)
{
	pid_t child = fork();
	if (child == 0)
		_exit(cuInit(0) == CUDA_SUCCESS ? 0 : 1);
	int status;
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
}

/* Functions that PyTorch and NCCL look up, whatever their result: without the name they end, or give up the library. */
static void missing(void)
{
	unsigned n;
	struct pci pci;
	const void *table = &n;
	char id[16] = "";
	CLAIM(CALL("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, 0, &n) == 3 && CALL("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, 0, &pci) == 3);
	CLAIM(CALL("nvmlDeviceGetNvLinkState", gpu, 0, &n) == 3 && CALL("nvmlDeviceGetNvLinkCapability", gpu, 0, 0, &n) == 3);
	CLAIM(CALL("nvmlDeviceGetP2PStatus", gpu, gpu, 0, &n) == 3 && CALL("nvmlDeviceGetFieldValues", gpu, 1, &n) == 3);
	CLAIM(CALL("nvmlDeviceGetGpuFabricInfoV", gpu, &n) == 3 && CALL("nvmlDeviceGetGpuFabricInfoV", NULL, &n) == 2);
	CLAIM(CALL("nvmlDeviceGetNvLinkState", gpu, 0, NULL) == 2 && CALL("nvmlDeviceGetFieldValues", gpu, 0, &n) == 2);
	CLAIM(CALL("nvmlInternalGetExportTable", &table, id) == 13 && !table);
}

int main(int argc, char **argv)
{
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	before_init();
	OK(CALL("nvmlInit_v2"));
	OK(CALL("nvmlInit_v2"));
	OK(CALL("nvmlShutdown"));
	OK(CALL("nvmlDeviceGetHandleByIndex_v2", 0, &gpu));
	if (argc > 1 && !strcmp(argv[1], "watch"))
		return watch();
	if (argc > 1 && !strcmp(argv[1], "versions"))
		return versions();
	fork_first();
	identify();
	refuse();
	missing();
	use();
	OK(CALL("nvmlShutdown"));
	before_init();
	return 0;
}
