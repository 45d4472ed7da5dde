#define _GNU_SOURCE
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/futex.h"

static _Atomic int threshold = -1;

static int level(void)
{
	static const char *const names[] = {"off", "error", "info", "debug"};
	int known = atomic_load_explicit(&threshold, memory_order_relaxed);
	if (known >= 0)
		return known;
	int unknown = -1, at = LOG_OFF;
	const char *want = getenv("PEGASUS_LOG");
	known = LOG_ERROR;
	while (want && *want && at <= LOG_DEBUG && strcmp(want, names[at]) != 0)
		at++;
	if (want && *want && at <= LOG_DEBUG)
		known = at;
	if (atomic_compare_exchange_strong_explicit(&threshold, &unknown, known, memory_order_relaxed, memory_order_relaxed) && at > LOG_DEBUG)
		setting_ignored("PEGASUS_LOG", want, "off, error, info or debug");
	return known;
}

void setting_ignored(const char *name, const char *value, const char *wanted)
{
	log_at(LOG_ERROR, "%s=%.128s: want %s; ignored", name, value, wanted);
}

/* Writes each line with one write, so that threads do not mix; no stdio, which a program may have closed. */
void log_at(enum log_level at, const char *format, ...)
{
	if (at > (enum log_level)level())
		return;
	int saved = errno;
	char line[512] = "pegasus: ";
	size_t used = strlen(line);
	va_list list;
	va_start(list, format);
	int n = vsnprintf(line + used, sizeof line - used - 1, format, list);
	va_end(list);
	if (n > 0) {
		int cancelable; /* a write is a cancellation point, and the caller may hold a lock */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
		used += (size_t)n;
		if (used > sizeof line - 2)
			used = sizeof line - 2;
		line[used++] = '\n';
		ssize_t written = write(STDERR_FILENO, line, used);
		(void)written;
		pthread_setcancelstate(cancelable, NULL);
	}
	errno = saved;
}
