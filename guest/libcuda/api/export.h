/*
 * Interface of the optional component guest/tables. Its functions have weak definitions here, so linking decides
 * whether a build contains the component: without it no export table exists and nothing is attached to contexts.
 */
#ifndef PEGASUS_API_EXPORT_H
#define PEGASUS_API_EXPORT_H

#include "cuda.h"

/* Returns the export table with the id, or NULL. */
const void *export_table(const CUuuid *id);

/*
 * Called before a context is destroyed, while it is still usable. The caller holds no lock, since this runs functions
 * of the program.
 */
void export_context_ends(CUcontext context);

/* Called after a context was destroyed. */
void export_context_ended(CUcontext context);

#endif
