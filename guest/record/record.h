/* A library that is loaded before a CUDA driver and records a program's calls. docs/recording.md has the format. */
#pragma once

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_ARGUMENTS = 16 };

/*
 * Kinds of arguments. A pointer's description includes the size of one element and the argument that gives the number
 * of elements.
 */
enum argument_kind {
	NUMBER = 1,
	HANDLE,      /* or a device address */
	TEXT,
	CALLBACK,
	IN,          /* bytes that the driver reads */
	OUT,         /* bytes that the driver writes */
	IN_OUT,
	IN_HANDLES,
	OUT_HANDLES,
	DATA_IN,     /* as many bytes as another argument gives, of any kind */
	DATA_OUT,
	SCRATCH,     /* without effect, or handled by hand */
};

struct recorded {
	const char *name;
	void *wrapper;
	int count;
	struct {
		enum argument_kind kind;
		unsigned size;
		int counted;
	} arguments[MAX_ARGUMENTS];
};

extern const struct recorded recorded[]; /* zz_calls.c; its wrappers call the two functions below */
extern const int recordedCount;

CUresult record_call(int which, uint64_t *arguments);
void *record_real(int which);
