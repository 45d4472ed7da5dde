#include "api/entry.h"

#include <stddef.h>

enum { NAMES_MOST = 1024 };

/* Symbols logged so far, by the address of their name. */
static _Atomic(const char *) logged[NAMES_MOST];

static bool log_first_time(const char *symbol)
{
	size_t at = ((uintptr_t)symbol >> 2) % NAMES_MOST;
	for (size_t i = 0; i < NAMES_MOST; i++, at = (at + 1) % NAMES_MOST) {
		const char *seen = NULL;
		if (atomic_compare_exchange_strong_explicit(&logged[at], &seen, symbol, memory_order_relaxed,
			memory_order_relaxed))
			return true;
		if (seen == symbol)
			return false;
	}
	return false;
}

CUresult pg_unsupported(const char *symbol)
{
	if (log_first_time(symbol))
		log_at(LOG_INFO, "%s is not implemented", symbol);
	return CUDA_ERROR_NOT_SUPPORTED;
}
