/*
 * The tables that the CUDA runtime gets from cuGetExportTable when it is linked into a program: an optional component,
 * which only `make RUNTIME_TABLES=1` builds into libcuda.so.1.
 *
 * The tables are undocumented. Their ids, and the functions that the runtime expects in their slots, were discovered
 * and published by ZLUDA (github.com/vosen/ZLUDA, Apache-2.0 or MIT) and Lupine (github.com/lupinemachines/lupine,
 * Apache-2.0). A table begins with its size in bytes, except for that of context-local storage. A slot of unknown
 * purpose holds a function that returns an error.
 */
#include <stddef.h>
#include <string.h>

#include "api/context.h"
#include "object/context.h"
#include "api/entry.h"
#include "api/export.h"
#include "tables.h"
#include "core/zz_impl.h"

#define SIZE(slots) ((const void *)(uintptr_t)((slots) * sizeof(void *)))
#define SLOT(function) ((const void *)(function))

static CUresult unknown(void) { return pg_unsupported("a slot of a table of cuGetExportTable"); }
static uintptr_t nothing(void) { return 0; }

/* Without integrity.c requests for the table are rejected. */
__attribute__((weak)) bool integrity_is_known(void) { return false; }
__attribute__((weak)) CUresult integrity_check(uint32_t version, uint64_t seconds, uint8_t answer[16])
{
	(void)version, (void)seconds, (void)answer;
	return unknown();
}

/* --- the runtime's interface --- */

static CUresult load(CUmodule *module, const void *image)
{
	CUresult r = process_enter();
	return r != CUDA_SUCCESS ? r : pg_cuModuleLoadFatBinary(module, image);
}

static CUresult module_of_wrapper(CUmodule *module, const void *wrapper) { return load(module, wrapper); }

/* The purpose of the other arguments is not published. */
static CUresult module_with_more(CUmodule *module, const void *wrapper, const void *first, const void *second, uint32_t third)
{
	return first || second || third ? unknown() : load(module, wrapper);
}

static CUresult module_of_fatbin(const void *fatbin, CUmodule *module, const void *first, const void *second, uint32_t third)
{
	return module_with_more(module, fatbin, first, second, third);
}

static CUresult primary(CUcontext *context, CUdevice device)
{
	CUresult r = process_enter();
	return r != CUDA_SUCCESS ? r : context_primary(device, context);
}

/* Older runtimes use the first ten slots of the same table. */
const void *const interface_table[] = {
	SIZE(13), SLOT(module_of_wrapper), SLOT(primary), SLOT(unknown), SLOT(unknown), SLOT(unknown), SLOT(module_with_more),
	SLOT(nothing), SLOT(module_of_fatbin), SLOT(unknown), SLOT(unknown), SLOT(unknown), SLOT(nothing) /* load compilers */,
};

/* --- hooks of tools: none --- */

static void give(void *buffer, size_t bytes, void **at, size_t *size)
{
	if (at)
		*at = buffer;
	if (size)
		*size = bytes;
}

static void callbacks(void **at, size_t *size)
{
	static uint8_t buffer[1024];
	give(buffer, sizeof buffer, at, size);
}

static void subscribers(void **at, size_t *size)
{
	static uint8_t buffer[14];
	give(buffer, sizeof buffer, at, size);
}

static const void *const tools_table[] = {
	SIZE(7), SLOT(nothing), SLOT(callbacks), SLOT(nothing), SLOT(nothing), SLOT(nothing), SLOT(subscribers),
};
static const void *const thread_table[] = {SIZE(4), SLOT(nothing), SLOT(nothing), SLOT(nothing)};

/* --- context-local storage, checks --- */

static const void *const storage_table[] = {SLOT(storage_put), SLOT(storage_delete), SLOT(storage_get), NULL};

static CUresult check_context(CUcontext context, uint32_t *state, const void **more)
{
	(void)context, (void)more;
	if (state)
		*state = 0;
	return CUDA_SUCCESS;
}

#define FOUR SLOT(unknown), SLOT(unknown), SLOT(unknown), SLOT(unknown)
#define SIXTEEN FOUR, FOUR, FOUR, FOUR

/* The runtime uses four slots, cuBLAS more. */
static const void *const checks_table[] = {
	SIZE(17), SLOT(unknown), SLOT(check_context), SLOT(nothing), FOUR, FOUR, FOUR, SLOT(unknown),
};
const void *const integrity_table[] = {SIZE(3), SLOT(integrity_check), SLOT(unknown)};

/* Runtimes from 13.4 on require it to exist, and call none of its functions. */
static const void *const newest_table[] = {
	SIZE(94), SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN, FOUR, FOUR, FOUR, SLOT(unknown),
};

#define HAS(table, slots) _Static_assert(sizeof(table) == (slots) * sizeof(void *), #table)
HAS(interface_table, 13);
HAS(tools_table, 7);
HAS(thread_table, 4);
HAS(checks_table, 17);
HAS(integrity_table, 3);
HAS(newest_table, 94);

static const struct {
	unsigned char id[16];
	const void *table;
} tables[] = {
	{{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, interface_table},
	{{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66}, tools_table},
	{{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}, thread_table},
	{{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}, storage_table},
	{{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e}, checks_table},
	{{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2}, integrity_table},
	{{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2}, newest_table},
};

const void *export_table(const CUuuid *id)
{
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		if (memcmp(id, tables[i].id, sizeof tables[i].id) == 0)
			return tables[i].table != integrity_table || integrity_is_known() ? tables[i].table : NULL;
	return NULL;
}
