/* Submission of copies. */
#ifndef PEGASUS_WORK_COPY_H
#define PEGASUS_WORK_COPY_H

#include "core/zz_wire.h"
#include "object/stream.h"
#include "work/box.h"

/*
 * Reports whether the context of a stream reference has synchronous memory operations for all memory
 * (CU_CTX_SYNC_MEMOPS).
 */
bool stream_syncs(const struct stream_ref *ref);

/*
 * Runs the copy. On return a pageable source has been read and a pageable target is complete; with wait the whole copy
 * is complete.
 */
CUresult copy_box(const struct stream_ref *ref, const struct box *box, bool wait);

/* Copy the rows of a box between its endpoint in host memory and a packed buffer. */
void box_gather(const struct box *box, uint8_t *packed);
void box_scatter(const struct box *box, const uint8_t *packed);
/* Copies a box within host memory. */
void box_move(const struct box *box);
/* Returns the packet arguments of a copy with its host endpoint replaced by packed bytes at an arena offset. */
struct copy_args box_staged(const struct box *box, uint64_t offset);

#endif
