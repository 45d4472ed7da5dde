/* The options of just-in-time compilation: values in void pointers, some of them results. */
#ifndef PEGASUS_JIT_H
#define PEGASUS_JIT_H

#include "cuda.h"

struct jit {
	char *infoLog, *errorLog;
	unsigned int infoBytes, errorBytes;     /* room, as the program said */
	void **infoUsed, **errorUsed, **wall;   /* where results go */
	unsigned int verbose;
	float before; /* milliseconds that earlier calls took */
};

/* Reads options by number; an unknown one, or a missing array, is CUDA_ERROR_INVALID_VALUE. */
CUresult jit_read(unsigned int count, const CUjit_option *options, void **values, struct jit *jit);
/* Writes the log and the time into the program's buffers. */
void jit_report(const struct jit *jit, const char *log, size_t logBytes, CUresult result, float milliseconds);

#endif
