/*
 * Events in the life of the process, its threads and its modules that higher layers handle. The layers below report an
 * event through the table of hooks, since they must not name functions of higher layers; api/lifecycle.c fills in the
 * table when the library is loaded, and never changes it.
 */
#ifndef PEGASUS_CORE_LIFECYCLE_H
#define PEGASUS_CORE_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>

struct lifecycle_hooks {
	void (*before_fork)(void);
	void (*after_fork)(bool child);
	void (*thread_ends)(void);             /* in the thread that ends, while the process is connected */
	void (*module_ends)(uint64_t module);  /* the handle of a module that is unloaded, or destroyed with its context */
};
extern struct lifecycle_hooks lifecycle_hooks;

/* Makes thread_register effective; idempotent. */
void lifecycle_begin(void);
/* Registers the calling thread, so that thread_ends runs when the thread ends. */
void thread_register(void);

#endif
