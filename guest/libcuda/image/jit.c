#include "image/jit.h"

#include <stdint.h>
#include <string.h>

CUresult jit_read(unsigned int count, const CUjit_option *options, void **values, struct jit *jit)
{
	*jit = (struct jit){0};
	if (count == 0)
		return CUDA_SUCCESS;
	if (!options || !values || count > CU_JIT_NUM_OPTIONS)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		void **value = &values[i];
		unsigned int number = (unsigned int)(uintptr_t)*value;
		switch ((unsigned)options[i]) {
		case CU_JIT_WALL_TIME:
			jit->wall = value;
			break;
		case CU_JIT_INFO_LOG_BUFFER:
			jit->infoLog = *value;
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			jit->infoBytes = number;
			jit->infoUsed = value;
			break;
		case CU_JIT_ERROR_LOG_BUFFER:
			jit->errorLog = *value;
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			jit->errorBytes = number;
			jit->errorUsed = value;
			break;
		case CU_JIT_LOG_VERBOSE:
			jit->verbose = number;
			break;
		default: /* options for the compiler only */
			if ((unsigned)options[i] >= CU_JIT_NUM_OPTIONS)
				return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

/* Writes text with its NUL into a buffer, and its length into the size option's slot. */
static void fill(char *buffer, unsigned int room, void **used, const char *text, size_t length)
{
	size_t written = 0;
	if (buffer && room > 0) {
		if (length > room - 1)
			length = room - 1;
		memcpy(buffer, text, length);
		buffer[length] = 0;
		written = length ? length + 1 : 0;
	}
	if (used)
		*used = (void *)(uintptr_t)written;
}

void jit_report(const struct jit *jit, const char *log, size_t logBytes, CUresult result, float milliseconds)
{
	int failed = result != CUDA_SUCCESS;
	fill(jit->errorLog, jit->errorBytes, jit->errorUsed, log, failed ? logBytes : 0);
	fill(jit->infoLog, jit->infoBytes, jit->infoUsed, log, failed ? 0 : logBytes);
	if (jit->wall) {
		uint32_t bits;
		milliseconds += jit->before;
		memcpy(&bits, &milliseconds, sizeof bits);
		*jit->wall = (void *)(uintptr_t)bits;
	}
}
