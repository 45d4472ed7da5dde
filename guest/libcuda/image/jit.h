/* Options of just-in-time compilation: values in void pointers, some of which are results. */
#ifndef PEGASUS_IMAGE_JIT_H
#define PEGASUS_IMAGE_JIT_H

#include "cuda.h"

struct jit {
	char *infoLog, *errorLog;
	unsigned int infoBytes, errorBytes;     /* buffer sizes, from the program */
	void **infoUsed, **errorUsed, **wall;   /* destinations of results */
	unsigned int verbose;
	float before; /* milliseconds used by earlier calls */
};

/* Parses options by number; an unknown option, or a missing array, is CUDA_ERROR_INVALID_VALUE. */
CUresult jit_read(unsigned int count, const CUjit_option *options, void **values, struct jit *jit);
/* Writes log and time to the program's buffers. */
void jit_report(const struct jit *jit, const char *log, size_t logBytes, CUresult result, float milliseconds);

#endif
