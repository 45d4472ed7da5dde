/*
 * Export tables are in no manual. Programs that bring the CUDA runtime with them ask for some; what is refused here is answered
 * by guest/tables, if that is built in. The runtime asks for its interface first, and when that is missing reports that nothing
 * is supported: it gets no further, to tables without which it ends the process.
 */
#include "export.h"

#include <stddef.h>

#include "zz_impl.h"

__attribute__((weak)) const void *export_table(const CUuuid *id)
{
	(void)id;
	return NULL;
}

__attribute__((weak)) void export_context_ends(CUcontext context) { (void)context; }
__attribute__((weak)) void export_context_ended(CUcontext context) { (void)context; }

CUresult pg_cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table)
		return CUDA_ERROR_INVALID_VALUE;
	*table = id ? export_table(id) : NULL;
	return *table ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
