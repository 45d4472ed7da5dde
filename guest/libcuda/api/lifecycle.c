/* The library's handlers of lifecycle events, in order: see core/lifecycle.h. */
#include "core/lifecycle.h"

#include "api/reference.h"
#include "api/stream.h"
#include "core/connect.h"
#include "core/ring.h"
#include "work/hostmap.h"

static void before_fork(void)
{
	connect_before_fork();
	hostmap_before_fork();
}

static void after_fork(bool child)
{
	hostmap_after_fork(child);
	connect_after_fork(child);
}

static void thread_ends(void)
{
	stream_release_thread();
	call_release_thread();
}

__attribute__((constructor)) static void install_hooks(void)
{
	lifecycle_hooks = (struct lifecycle_hooks){
		.before_fork = before_fork,
		.after_fork = after_fork,
		.thread_ends = thread_ends,
		.module_ends = reference_module_gone,
	};
}
