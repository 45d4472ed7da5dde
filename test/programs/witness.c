/*
 * witness NAME: uses all of an accelerator for as long as it runs, and checks all results. Each round has numbers of
 * its own: they go to the device, a kernel transforms each repeatedly, and they come back. Many rounds are always
 * queued. Twice a second it prints the number of right ones: "NAME-PID right N".
 */
#include "check.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { Streams = 2, Queue = 32, Blocks = 4, Threads = 256, Words = Blocks * Threads, Bytes = 4 * Words, Steps = 4000, Samples = 4 };

static const char turn_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry turn(.param .u64 out, .param .u64 in, .param .u32 steps)\n{\n"
	"	.reg .u64 %o, %i, %at;\n	.reg .u32 %n, %b, %w, %t, %v, %s;\n	.reg .pred %p;\n"
	"	ld.param.u64 %o, [out];\n	ld.param.u64 %i, [in];\n	ld.param.u32 %n, [steps];\n"
	"	mov.u32 %b, %ctaid.x;\n	mov.u32 %w, %ntid.x;\n	mov.u32 %t, %tid.x;\n	mad.lo.u32 %t, %b, %w, %t;\n"
	"	mul.wide.u32 %at, %t, 4;\n	add.u64 %i, %i, %at;\n	add.u64 %o, %o, %at;\n	ld.global.u32 %v, [%i];\n"
	"again:\n"
	"	shl.b32 %s, %v, 13;\n	xor.b32 %v, %v, %s;\n	shr.u32 %s, %v, 17;\n	xor.b32 %v, %v, %s;\n"
	"	shl.b32 %s, %v, 5;\n	xor.b32 %v, %v, %s;\n"
	"	sub.u32 %n, %n, 1;\n	setp.ne.u32 %p, %n, 0;\n	@%p bra again;\n"
	"	st.global.u32 [%o], %v;\n	ret;\n}\n";

/* A round in flight: its data for the device and back, in pinned memory. */
struct flight {
	uint32_t *there, *back;
	CUevent done;
};

static CUstream streams[Streams];
static CUdeviceptr in[Streams], out[Streams];
static CUfunction turn;
static struct flight flights[Queue];

static uint32_t number(uint32_t round, uint32_t i)
{
	return round * 2654435761u ^ (i + 1) * 2246822519u;
}

static uint32_t turned(uint32_t v)
{
	for (int i = 0; i < Steps; i++) {
		v ^= v << 13;
		v ^= v >> 17;
		v ^= v << 5;
	}
	return v;
}

static void set_up(void)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, turn_ptx));
	CHECK(cuModuleGetFunction(&turn, module, "turn"));
	for (int i = 0; i < Streams; i++) {
		CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		CHECK(cuMemAlloc(&in[i], Bytes));
		CHECK(cuMemAlloc(&out[i], Bytes));
	}
	for (int i = 0; i < Queue; i++) {
		CHECK(cuMemAllocHost((void **)&flights[i].there, Bytes));
		CHECK(cuMemAllocHost((void **)&flights[i].back, Bytes));
		CHECK(cuEventCreate(&flights[i].done, CU_EVENT_DISABLE_TIMING));
	}
}

static void launch(uint32_t round)
{
	struct flight *f = &flights[round % Queue];
	int which = round % Streams;
	uint32_t steps = Steps;
	void *args[] = { &out[which], &in[which], &steps };

	for (uint32_t i = 0; i < Words; i++)
		f->there[i] = number(round, i);
	memset(f->back, 0, Bytes);
	CHECK(cuMemcpyHtoDAsync(in[which], f->there, Bytes, streams[which]));
	CHECK(cuLaunchKernel(turn, Blocks, 1, 1, Threads, 1, 1, 0, streams[which], args, NULL));
	CHECK(cuMemcpyDtoHAsync(f->back, out[which], Bytes, streams[which]));
	CHECK(cuEventRecord(f->done, streams[which]));
}

/*
 * Waits for a round, and checks some of its numbers, different ones each time, since the transformation takes as long
 * here as on the device. None can be zero: only zero is transformed to zero.
 */
static void land(const char *name, uint32_t round)
{
	struct flight *f = &flights[round % Queue];

	CHECK(cuEventSynchronize(f->done));
	for (uint32_t i = round % (Words / Samples); i < Words; i += Words / Samples) {
		uint32_t want = turned(number(round, i));
		if (f->back[i] == want)
			continue;
		printf("%s-%d wrong: round %" PRIu32 ", number %" PRIu32 " is %#" PRIx32 ", not %#" PRIx32 "\n", name, getpid(), round, i, f->back[i], want);
		exit(3);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double told = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 2) {
		fprintf(stderr, "usage: witness NAME\n");
		return 2;
	}
	set_up();
	for (uint32_t round = 0;; round++) {
		if (round >= Queue) {
			land(argv[1], round - Queue);
			if (now() - told >= 0.5) {
				printf("%s-%d right %" PRIu32 "\n", argv[1], getpid(), round - Queue + 1);
				told = now();
			}
		}
		launch(round);
	}
}
