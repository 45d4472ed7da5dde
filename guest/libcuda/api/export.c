/*
 * Export tables are undocumented. Programs that bundle the CUDA runtime request some of them; guest/tables, if linked,
 * provides those that are rejected here. The runtime requests its own interface first. If that is rejected, it reports
 * that nothing is supported. It then never requests those tables whose absence would make it end the process.
 */
#include "api/export.h"

#include <stddef.h>
#include <string.h>

#include "core/process.h"
#include "core/zz_impl.h"

__attribute__((weak)) const void *export_table(const CUuuid *id)
{
	(void)id;
	return NULL;
}

__attribute__((weak)) void export_context_ends(CUcontext context) { (void)context; }
__attribute__((weak)) void export_context_ended(CUcontext context) { (void)context; }

/*
 * The tables that runtimes request. Absent ones among these are reported as not found; any other id is an invalid
 * value, as with NVIDIA's driver.
 */
static const unsigned char requested[][sizeof(CUuuid)] = {
	{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, /* its interface, which it requests first: without it a runtime gets nowhere */
	{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2}, /* integrity: without it neither */
	{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9}, /* optional in every driver */
	{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66}, /* tools */
	{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}, /* thread data */
	{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}, /* context-local storage */
	{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e}, /* checks */
	{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2}, /* from 13.4 on */
};
#define REQUESTED (sizeof requested / sizeof *requested)
enum { INTERFACE, INTEGRITY };

/* Returns the index of an id among the requested tables, or REQUESTED. */
static size_t requested_at(const CUuuid *id)
{
	size_t i = 0;
	while (i < REQUESTED && memcmp(id, requested[i], sizeof requested[i]) != 0)
		i++;
	return i;
}

/* Logs a missing table and the remedy: the runtime's own error names neither. */
static void report_refusal(size_t at)
{
	static _Atomic bool reported;
	if ((at != INTERFACE && at != INTEGRITY) || atomic_exchange(&reported, true))
		return;
	if (export_table((const CUuuid *)requested[INTERFACE]))
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
	if (*table)
		return CUDA_SUCCESS;
	size_t at = id ? requested_at(id) : REQUESTED;
	report_refusal(at);
	return at < REQUESTED ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
