#include "bench.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "latency.h"
#include "report.h"

/* Counters of the timed loop. */
struct run {
	struct latency calls;  /* one launch call, until it returned */
	struct latency rounds; /* from its launch until its completion was detected */
	int64_t launched, done;
	int64_t begin, end;
	int64_t told; /* time of the last progress report */
	int64_t told_done;
};

/* A round in flight. */
struct flight {
	CUevent event;
	int64_t begin;
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

_Noreturn void bench_fail(const char *call, CUresult result)
{
	const char *name = NULL;
	int length = (int)strcspn(call, "(");

	if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown error";
	fprintf(stderr, "%.*s: %s (%d)\n", length, call, name, (int)result);
	exit(1);
}

int64_t bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

void *bench_allocate(size_t count, size_t bytes)
{
	void *p = calloc(count, bytes);

	if (!p) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return p;
}

CUfunction bench_function(struct bench *b, const char *name)
{
	CUfunction f;

	CHECK(cuModuleGetFunction(&f, b->module, name));
	return f;
}

void bench_launch(struct bench *b, CUfunction f, unsigned blocks, unsigned threads, void **args)
{
	CHECK(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, b->stream, args, NULL));
}

CUdeviceptr bench_upload(const void *from, size_t bytes)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, bytes));
	if (from)
		CHECK(cuMemcpyHtoD(p, from, bytes));
	return p;
}

void *bench_download(CUdeviceptr from, size_t bytes)
{
	void *p = bench_allocate(bytes, 1);

	CHECK(cuMemcpyDtoH(p, from, bytes));
	return p;
}

unsigned bench_blocks(size_t n, unsigned threads, unsigned most)
{
	size_t blocks = (n + threads - 1) / threads;

	return blocks < most ? (unsigned)blocks : most;
}

uint32_t bench_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8; /* the low bits of such a generator have a short period */
}

void bench_fill(float *to, size_t n, uint32_t seed, float low, float high)
{
	for (size_t i = 0; i < n; i++)
		to[i] = low + (high - low) * ((float)bench_random(&seed) / 0x1p24f);
}

bool bench_close(const char *what, size_t at, double got, double want, double tolerance)
{
	if (fabs(got - want) <= tolerance)
		return true;
	fprintf(stderr, "%s[%zu] is %.9g, and %.9g on the processor\n", what, at, got, want);
	return false;
}

/* Reports progress every second in a run of more than two seconds. */
static void tell(struct bench *b, struct run *r, int64_t now)
{
	if (b->options.quiet || now - r->begin < 2000000000 || now - r->told < 1000000000)
		return;
	int64_t since = r->told ? r->told : r->begin;
	fprintf(stderr, "%s: %3.0f s  %lld rounds  %.4g %s/s\n", b->workload->name, (double)(now - r->begin) / 1e9,
		(long long)r->done, b->work * (double)(r->done - r->told_done) * 1e9 / (double)(now - since),
		b->workload->unit);
	r->told = now;
	r->told_done = r->done;
}

/* Sleeps between rounds, to the microsecond. */
static void rest(struct bench *b)
{
	int64_t ns = (int64_t)(b->options.pause_ms * 1e6);
	struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	if (ns > 0)
		nanosleep(&t, NULL); /* a signal ends the sleep, and then the run */
}

static bool more(struct bench *b, struct run *r, int64_t now)
{
	if (stop || (b->options.iterations && r->launched >= b->options.iterations))
		return false;
	return b->options.seconds == 0 || (double)(now - r->begin) < b->options.seconds * 1e9;
}

/* Waits until the round has completed. */
static void land(struct run *r, struct flight *f)
{
	CHECK(cuEventSynchronize(f->event));
	latency_add(&r->rounds, bench_now() - f->begin);
	r->done++;
}

static void pack(struct luggage *l, double megabytes)
{
	uint32_t seed = 1;

	l->bytes = (size_t)(megabytes * 1e6);
	if (l->bytes == 0)
		return;
	CHECK(cuMemAllocHost(&l->there, l->bytes));
	CHECK(cuMemAllocHost(&l->back, l->bytes));
	for (size_t i = 0; i < l->bytes; i++)
		((uint8_t *)l->there)[i] = (uint8_t)bench_random(&seed);
	l->device = bench_upload(NULL, l->bytes);
}

static void unpack(struct luggage *l)
{
	if (l->bytes == 0)
		return;
	CHECK(cuMemFree(l->device));
	CHECK(cuMemFreeHost(l->there));
	CHECK(cuMemFreeHost(l->back));
}

/* Computes on the processor between rounds: a fixed number of steps on any processor. */
static void compute(uint32_t steps)
{
	static volatile uint32_t result;
	uint32_t x = result | 1;

	for (uint32_t i = 0; i < steps; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
	}
	result = x;
}

/* Queues a round, with its extra copies. */
static void launch(struct bench *b)
{
	struct luggage *l = &b->luggage;


	if (l->bytes > 0)
		CHECK(cuMemcpyHtoDAsync(l->device, l->there, l->bytes, b->stream));
	b->workload->launch(b);
	if (l->bytes > 0)
		CHECK(cuMemcpyDtoHAsync(l->back, l->device, l->bytes, b->stream));
}

/* Reports whether the last round's result is right, and the extra data came back. */
static bool right(struct bench *b)
{
	struct luggage *l = &b->luggage;

	if (l->bytes > 0 && memcmp(l->there, l->back, l->bytes) != 0) {
		fprintf(stderr, "what came back isn't what was copied to the device\n");
		return false;
	}
	return b->workload->check(b);
}

/* Launches rounds so that queue to queue+1 are always in flight. */
static void run_queued(struct bench *b, struct run *r)
{
	int64_t depth = b->options.queue + 1;
	struct flight *flights = bench_allocate((size_t)depth, sizeof *flights);

	for (int64_t i = 0; i < depth; i++)
		CHECK(cuEventCreate(&flights[i].event, CU_EVENT_DISABLE_TIMING));
	for (int64_t now = r->begin; more(b, r, now); now = bench_now()) {
		struct flight *f = &flights[r->launched % depth];
		if (r->launched >= depth)
			land(r, f);
		compute(b->options.cpu_steps);
		f->begin = bench_now();
		launch(b);
		latency_add(&r->calls, bench_now() - f->begin);
		CHECK(cuEventRecord(f->event, b->stream));
		r->launched++;
		tell(b, r, now);
		rest(b);
	}
	while (r->done < r->launched)
		land(r, &flights[r->done % depth]);
	for (int64_t i = 0; i < depth; i++)
		CHECK(cuEventDestroy(flights[i].event));
	free(flights);
}

/* Launches rounds one by one and waits for each. */
static void run_synchronous(struct bench *b, struct run *r)
{
	for (int64_t now = r->begin; more(b, r, now); now = bench_now()) {
		compute(b->options.cpu_steps);
		int64_t begin = bench_now();
		launch(b);
		latency_add(&r->calls, bench_now() - begin);
		r->launched++;
		CHECK(cuStreamSynchronize(b->stream));
		latency_add(&r->rounds, bench_now() - begin);
		r->done++;
		tell(b, r, now);
		rest(b);
	}
}

static struct run *run(struct bench *b)
{
	struct run *r = bench_allocate(1, sizeof *r);

	for (int i = 0; i < b->options.warmup; i++)
		launch(b);
	CHECK(cuStreamSynchronize(b->stream));
	r->begin = bench_now();
	if (b->options.queue > 0)
		run_queued(b, r);
	else
		run_synchronous(b, r);
	r->end = bench_now();
	return r;
}

static void report(struct bench *b, const struct run *r, const char *checked)
{
	double seconds = (double)(r->end - r->begin) / 1e9;

	report_begin(b->options.json);
	report_text("program", b->workload->name);
	report_number("size", (double)b->options.size);
	report_number("queue", b->options.queue);
	report_number("launches", (double)r->done);
	report_number("seconds", seconds);
	report_number("launches_per_s", seconds > 0 ? (double)r->done / seconds : 0);
	report_number("throughput", seconds > 0 ? b->work * (double)r->done / seconds : 0);
	report_text("unit", b->workload->unit);
	report_number("call_p50_ns", (double)latency_percentile(&r->calls, 0.5));
	report_number("call_p99_ns", (double)latency_percentile(&r->calls, 0.99));
	report_number("round_p50_ns", (double)latency_percentile(&r->rounds, 0.5));
	report_number("round_p85_ns", (double)latency_percentile(&r->rounds, 0.85));
	report_number("round_p99_ns", (double)latency_percentile(&r->rounds, 0.99));
	if (b->workload->details)
		b->workload->details(b);
	report_text("result", checked);
	report_end();
}

static void set_up(struct bench *b)
{
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&b->device, b->options.device));
	CHECK(cuDevicePrimaryCtxRetain(&context, b->device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&b->module, b->workload->ptx));
	CHECK(cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING));
}

static void tear_down(struct bench *b)
{
	CHECK(cuStreamDestroy(b->stream));
	CHECK(cuModuleUnload(b->module));
	CHECK(cuCtxSetCurrent(NULL));
	CHECK(cuDevicePrimaryCtxRelease(b->device));
}

int bench_main(int argc, char **argv, const struct workload *w)
{
	struct bench b = { .workload = w, .options = options_parse(argc, argv, w), .work = 1 };
	const char *checked = "unchecked";

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* otherwise short pauses last 50 us longer */
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	set_up(&b);
	w->prepare(&b);
	pack(&b.luggage, b.options.copy_mb);
	struct run *r = run(&b);
	if (b.options.check && r->launched + b.options.warmup > 0)
		checked = right(&b) ? "right" : "wrong";
	report(&b, r, checked);
	free(r);
	w->release(&b);
	unpack(&b.luggage);
	tear_down(&b);
	return strcmp(checked, "wrong") == 0 ? 3 : 0;
}
