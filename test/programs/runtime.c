/*
 * Starts as the CUDA runtime does that is linked into programs, which finds the driver's functions by name only:
 * runtime VERSION
 *
 * With a second argument it requests the undocumented tables, as a runtime that gets them: "key" all of them, "tables"
 * all but the integrity table, which is missing from builds without a key.
 *
 * Its input has a line for each look-up, in the runtime's order: name, version in which the requested ABI appeared,
 * flags, and the expected symbol, or "-" if there is none. Finally it launches a kernel, and releases everything at its
 * exit.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "tables.h"

enum { BEFORE_INIT = 40, ATTRIBUTES = 144, MOST = 2000 };

static void *driver;
static int version;
static int lookups, found, failures;
static bool wanted; /* expects the tables */
static bool known; /* with a key */

typedef CUresult (*get_v1)(const char *, void **, int, cuuint64_t);
typedef CUresult (*get_v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
static void *get; /* of the ABI that this runtime requested */

/* The functions found, by name and flags. */
static struct entry {
	char name[64];
	int flags;
	void *pfn;
} entries[MOST];

static void *look_up(const char *name, int at, int flags)
{
	void *pfn = NULL;
	CUdriverProcAddressQueryResult status;
	bool quiet = lookups % 2; /* the status is optional */
	CUresult r = version < 12000 ? ((get_v1)get)(name, &pfn, at, (cuuint64_t)flags)
		: ((get_v2)get)(name, &pfn, at, (cuuint64_t)flags, quiet ? NULL : &status);
	bool absent = version < 12000 ? r == CUDA_ERROR_NOT_FOUND : r == CUDA_SUCCESS && !pfn;
	if (absent ? pfn || (version >= 12000 && !quiet && status == CU_GET_PROC_ADDRESS_SUCCESS) : r != CUDA_SUCCESS || !pfn) {
		printf("%s %d %d: result %d, %p\n", name, at, flags, r, pfn);
		failures++;
	}
	return pfn;
}

static int one_line(void)
{
	char line[256], name[64], symbol[64];
	int at, flags;
	if (!fgets(line, sizeof line, stdin))
		return 0;
	CLAIM(sscanf(line, "%63s %d %d %63s", name, &at, &flags, symbol) == 4 && found < MOST);
	void *pfn = look_up(name, at, flags), *right = strcmp(symbol, "-") ? dlsym(driver, symbol) : NULL;
	if (pfn != right) {
		printf("%s %d %d: %p, but %s is %p\n", name, at, flags, pfn, symbol, right);
		failures++;
	}
	struct entry *e = &entries[found];
	strcpy(e->name, name);
	e->flags = flags;
	e->pfn = pfn;
	found += pfn != NULL;
	return ++lookups;
}

static void *entry(const char *name, int flags)
{
	for (int i = 0; i < found; i++)
		if (!strcmp(entries[i].name, name) && entries[i].flags == flags)
			return entries[i].pfn;
	printf("%s was not looked up\n", name);
	exit(1);
}

/* A call as the header declares it, through the function found. */
#define CALL(name, symbol, ...) ((__typeof__(&symbol))entry(name, 0))(__VA_ARGS__)
#define CALL_PTSZ(name, symbol, ...) ((__typeof__(&symbol))entry(name, 2))(__VA_ARGS__)

static void open_driver(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	CLAIM(driver);
	get_v1 first = (get_v1)dlsym(driver, "cuGetProcAddress");
	CLAIM(first && dlsym(driver, "cuGetExportTable"));
	if (version >= 12000)
		CLAIM(dlsym(driver, "cuGetProcAddress_v2"));
	CHECK(first("cuGetProcAddress", &get, version < 12000 ? 11030 : 12000, 0));
	CLAIM(get == dlsym(driver, version < 12000 ? "cuGetProcAddress" : "cuGetProcAddress_v2"));
}

/* A table that no runtime requests is an invalid value, as with an H200's driver. */
static void unknown_table(void)
{
	const CUuuid id = {{1}};
	const void *table = &id;
	EXPECT(CUDA_ERROR_INVALID_VALUE, get_table(&table, &id));
	CLAIM(!table);
}

/*
 * A runtime without its interface reports that nothing is supported, and requests no other table, without which it
 * would end the process.
 */
static void no_tables(void)
{
	for (int which = PROBE; which < TABLES; which++) {
		EXPECT(CUDA_ERROR_NOT_FOUND, ask_table(which));
		CLAIM(!tables_of[which]);
	}
	unknown_table();
}

/* The tables that it requests before it has devices. */
static void tables(void)
{
	EXPECT(CUDA_ERROR_NOT_FOUND, ask_table(PROBE));
	need_table(INTERFACE);
	need_table(TOOLS);
	need_table(THREADS);
	need_table(STORAGE);
	check_tools();
	need_table(CHECKS);
	unknown_table();
	if (known)
		need_table(INTEGRITY);
	else
		EXPECT(CUDA_ERROR_NOT_FOUND, ask_table(INTEGRITY));
}

static void devices(void)
{
	int driver_version = 0, count = 0, value, answered = 0;
	CUdevice device;
	char name[100];
	size_t bytes;
	CUuuid uuid;
	CHECK(CALL("cuInit", cuInit, 0));
	CHECK(CALL("cuDriverGetVersion", cuDriverGetVersion, &driver_version));
	CLAIM(driver_version / 1000 >= version / 1000 || wanted);
	CHECK(CALL("cuDeviceGetCount", cuDeviceGetCount, &count));
	CLAIM(count == 1);
	CHECK(CALL("cuDeviceGet", cuDeviceGet, &device, 0));
	CHECK(CALL("cuDeviceGetName", cuDeviceGetName, name, sizeof name, device));
	CHECK(CALL("cuDeviceTotalMem", cuDeviceTotalMem_v2, &bytes, device));
	CHECK(CALL("cuDeviceGetUuid", cuDeviceGetUuid, &uuid, device));
	for (int a = 1; a < ATTRIBUTES; a++)
		answered += !CALL("cuDeviceGetAttribute", cuDeviceGetAttribute, &value, (CUdevice_attribute)a, device);
	CLAIM(answered == ATTRIBUTES - 1);
	if (known)
		check_integrity(version, driver_version);
}

/* --- a program's fat binary, as it is registered --- */

static struct {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes;
	struct {
		uint16_t kind, version;
		uint32_t header;
		uint64_t payload;
		uint32_t compressed, unknown;
		uint16_t minor, major;
		uint32_t sm, name, name_bytes;
		uint64_t flags, zero, plain;
	} entry;
	char text[sizeof step_ptx + 8 - sizeof step_ptx % 8];
} fat = {
	.magic = 0xba55ed50, .version = 1, .header = 16, .bytes = sizeof fat.entry + sizeof fat.text,
	.entry = {.kind = 1, .version = 0x101, .header = 64, .payload = sizeof fat.text, .sm = 50},
};
static struct {
	uint32_t magic, version;
	const void *fat, *more;
} wrapper = {0x466243b1, 1, &fat, NULL};

static CUlibrary library;
static CUmodule module;

/* Returns the function to launch: a kernel without a context, where kernels exist. */
static CUfunction load(void)
{
	CUfunction f = NULL;
	CUkernel k;
	CUlibraryOption options[] = {CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE, CU_LIBRARY_BINARY_IS_PRESERVED};
	void *values[] = {NULL, NULL};
	memcpy(fat.text, step_ptx, sizeof step_ptx);
	if (wanted) {
		module = load_module(&wrapper, &fat);
		CHECK(CALL("cuModuleGetFunction", cuModuleGetFunction, &f, module, "step"));
		return f;
	}
	if (version < 12000) {
		CHECK(CALL("cuModuleLoadFatBinary", cuModuleLoadFatBinary, &module, &wrapper));
		CHECK(CALL("cuModuleGetFunction", cuModuleGetFunction, &f, module, "step"));
		return f;
	}
	CUfunction of_module;
	CHECK(CALL("cuLibraryLoadData", cuLibraryLoadData, &library, &wrapper, NULL, NULL, 0, options, values, 2));
	CHECK(CALL("cuLibraryGetModule", cuLibraryGetModule, &module, library));
	CHECK(CALL("cuModuleGetFunction", cuModuleGetFunction, &of_module, module, "step"));
	CHECK(CALL("cuLibraryGetKernel", cuLibraryGetKernel, &k, library, "step"));
	CHECK(CALL("cuKernelGetFunction", cuKernelGetFunction, &f, k));
	CLAIM(f == of_module);
	return (CUfunction)k;
}

static void launch(CUfunction f)
{
	CUdeviceptr at;
	unsigned a = 3, b = 4, value = 1;
	CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	CHECK(CALL("cuMemAlloc", cuMemAlloc_v2, &at, 4));
	void *args[] = {&at, &a, &b};
	CHECK(CALL("cuMemcpyHtoD", cuMemcpyHtoD_v2, at, &value, 4));
	CHECK(CALL("cuLaunchKernel", cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL)); /* 7 */
	CHECK(CALL_PTSZ("cuLaunchKernel", cuLaunchKernel_ptsz, f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL)); /* 25 */
	value = 25;
	if (version >= 11060) {
		CHECK(CALL("cuLaunchKernelEx", cuLaunchKernelEx, &config, f, args, NULL)); /* 79 */
		value = 79;
	}
	unsigned want = value;
	CHECK(CALL("cuCtxSynchronize", cuCtxSynchronize));
	CHECK(CALL_PTSZ("cuMemcpyDtoH", cuMemcpyDtoH_v2_ptds, &value, at, 4));
	CLAIM(value == want);
	CHECK(CALL("cuMemFree", cuMemFree_v2, at));
}

static void let_go(void)
{
	if (wanted) {
		CHECK(cuDevicePrimaryCtxReset(0));
		CLAIM(ended == 1 && ended_values > 0);
		return;
	}
	CUresult r = library ? CALL("cuLibraryUnload", cuLibraryUnload, library) : CALL("cuModuleUnload", cuModuleUnload, module);
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_DEINITIALIZED);
	r = CALL("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2, 0);
	CLAIM(r == CUDA_SUCCESS || r == CUDA_ERROR_DEINITIALIZED);
}

int main(int argc, char **argv)
{
	CUcontext c, current;
	version = argc > 1 ? atoi(argv[1]) : 0;
	wanted = argc > 2;
	known = wanted && !strcmp(argv[2], "key");
	open_driver();
	while (lookups < BEFORE_INIT && one_line())
		;
	CHECK(((__typeof__(&cuInit))dlsym(driver, "cuInit"))(0));
	while (one_line())
		;
	get_table = (__typeof__(&cuGetExportTable))entry("cuGetExportTable", 0);
	wanted ? tables() : no_tables();
	devices();
	if (wanted)
		c = primary_context();
	else
		CHECK(CALL("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain, &c, 0));
	CHECK(CALL("cuCtxSetCurrent", cuCtxSetCurrent, c));
	CHECK(CALL("cuCtxGetCurrent", cuCtxGetCurrent, &current));
	CLAIM(current == c);
	if (wanted) {
		check_contexts(c);
		check_storage(c);
	}
	atexit(let_go);
	launch(load());
	printf("%d look-ups, %d found, %d failures\n", lookups, found, failures);
	return failures != 0;
}
