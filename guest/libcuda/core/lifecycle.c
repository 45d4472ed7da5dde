#include "core/lifecycle.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/process.h"

struct lifecycle_hooks lifecycle_hooks;

static pthread_once_t beginOnce = PTHREAD_ONCE_INIT;
static pthread_key_t threadKey;
static bool threadKeyMade;

static void before_fork(void) { lifecycle_hooks.before_fork(); }
static void after_fork_in_parent(void) { lifecycle_hooks.after_fork(false); }
static void after_fork_in_child(void) { lifecycle_hooks.after_fork(true); }

static void thread_ended(void *unused)
{
	(void)unused;
	thread.registered = false;
	if (process_enter() == CUDA_SUCCESS)
		lifecycle_hooks.thread_ends();
	if (thread.stack != thread.inlineStack)
		free(thread.stack);
	thread.stack = NULL;
	thread.depth = thread.capacity = 0;
}

/*
 * Of fork handlers that the program installs later, those before the fork run before the library's, and the child's
 * after it: the program takes its locks in the same order as its threads that call the library, and its child has
 * private memory by then.
 */
__attribute__((constructor)) static void install_fork_hooks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void make_key(void) { threadKeyMade = pthread_key_create(&threadKey, thread_ended) == 0; }

void lifecycle_begin(void) { pthread_once(&beginOnce, make_key); }

void thread_register(void)
{
	if (thread.registered || !threadKeyMade)
		return;
	thread.registered = pthread_setspecific(threadKey, &thread) == 0;
}
