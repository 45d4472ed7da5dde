/* Ends of streams. */
#ifndef PEGASUS_API_STREAM_H
#define PEGASUS_API_STREAM_H

#include <stdint.h>

/* Destroys the default streams of the calling thread, which ends. */
void stream_release_thread(void);
/* Drops streams, events, arrays and textures of a context that is destroyed. */
void stream_context_gone(uint64_t context);

#endif
