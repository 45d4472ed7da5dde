/*
 * Export tables are in no manual. Programs that bring the CUDA runtime with them ask for some; what is refused here is answered
 * by guest/tables, if that is built in. The runtime asks for its interface first, and when that is missing reports that nothing
 * is supported: it gets no further, to tables without which it ends the process.
 */
#include "export.h"

#include <stddef.h>
#include <string.h>

#include "process.h"
#include "zz_impl.h"

__attribute__((weak)) const void *export_table(const CUuuid *id)
{
	(void)id;
	return NULL;
}

__attribute__((weak)) void export_context_ends(CUcontext context) { (void)context; }
__attribute__((weak)) void export_context_ended(CUcontext context) { (void)context; }

/* The two without which a runtime gets nowhere: its interface, which it asks for first, and that of integrity. */
static const unsigned char interface[sizeof(CUuuid)] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
static const unsigned char integrity[sizeof(CUuuid)] = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};

/* The runtime's own error names neither the table nor the remedy. */
static void report_refusal(const CUuuid *id)
{
	static _Atomic bool reported;
	if ((memcmp(id, interface, sizeof interface) != 0 && memcmp(id, integrity, sizeof integrity) != 0) || atomic_exchange(&reported, true))
		return;
	if (export_table((const CUuuid *)interface))
		log_at(LOG_ERROR, "cuGetExportTable: the CUDA runtime in this program needs the table of integrity, and this build of the component guest/tables has no key for it; "
				  "make RUNTIME_TABLES=1 RUNTIME_KEY=FILE, see docs/runtime.md");
	else
		log_at(LOG_ERROR, "cuGetExportTable: the CUDA runtime in this program needs the component guest/tables, which this build of libcuda.so.1 lacks; "
				  "make RUNTIME_TABLES=1 RUNTIME_KEY=FILE, see docs/runtime.md");
}

CUresult pg_cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table)
		return CUDA_ERROR_INVALID_VALUE;
	*table = id ? export_table(id) : NULL;
	if (id && !*table)
		report_refusal(id);
	return *table ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
