/*
 * Calls symbols of CUDA 12.5 to 13.2, looked up by name, with garbage in the registers behind the arguments of their
 * predecessors.
 */
#include <dlfcn.h>
#include <stdint.h>

#include "check.h"

#define LOOK(name) ((int (*)(intptr_t, ...))look(name))

static void *look(const char *name)
{
	void *f = dlsym(RTLD_DEFAULT, name);
	CLAIM(f);
	return f;
}

static volatile int called;
static void count(void *data) { called += *(int *)data; }

int main(void)
{
	enum { GARBAGE = 0x1235, NOWHERE = 0x10 };
	int version, one = 1, synchronize;
	CUdevice device = -1;
	CUcontext c, of;
	CUstream stream;
	void *green = &green;
	CHECK(cuInit(0));
	CHECK(cuDriverGetVersion(&version));
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuStreamCreate(&stream, 0));
	int got = LOOK("cuCtxGetDevice_v2")((intptr_t)&device, (intptr_t)GARBAGE);
	CLAIM(got ? device == -1 : device == 0);
	synchronize = LOOK("cuCtxSynchronize_v2")((intptr_t)GARBAGE);
	printf("%d: device %d synchronize %d stream ", version, got, synchronize);
	got = LOOK("cuStreamGetCtx_v2")((intptr_t)stream, (intptr_t)&of, version < 12050 ? (intptr_t)NOWHERE : (intptr_t)&green);
	printf("%d", got);
	CLAIM(of == c && (version < 12050 || !green));
	got = LOOK("cuLaunchHostFunc_v2")((intptr_t)stream, (intptr_t)count, (intptr_t)&one, (intptr_t)GARBAGE);
	CHECK(cuStreamSynchronize(stream));
	printf(" callback %d %d; ", got, called);
	device = -1;
	got = LOOK("cuCtxGetDevice_v2")((intptr_t)&device, (intptr_t)c);
	synchronize = LOOK("cuCtxSynchronize_v2")((intptr_t)c);
	printf("named device %d %d synchronize %d\n", got, device, synchronize);
	return 0;
}
