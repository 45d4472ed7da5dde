/* Used by all test programs: calls with an expected result, and assertions. */
#ifndef PEGASUS_CHECK_H
#define PEGASUS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static inline const char *result_name(CUresult r)
{
	const char *name = NULL;
	return cuGetErrorName(r, &name) == CUDA_SUCCESS && name ? name : "?";
}

static inline void expect_at(CUresult got, CUresult want, const char *call, const char *file, int line)
{
	if (got == want)
		return;
	fprintf(stderr, "%s:%d: %s = %d %s, want %d %s\n", file, line, call, (int)got, result_name(got), (int)want, result_name(want));
	exit(1);
}

static inline void claim_at(int holds, const char *what, const char *file, int line)
{
	if (holds)
		return;
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	exit(1);
}

#define EXPECT(want, call) expect_at((call), (want), #call, __FILE__, __LINE__)
#define OK(call) EXPECT(CUDA_SUCCESS, call)
#define CLAIM(condition) claim_at(!!(condition), #condition, __FILE__, __LINE__)

#endif
