/*
 * calls measures the cost of driver calls against reference operations (peers): a call that the host answers, calls
 * that are queued, calls that the library answers itself, and copies. The peers are a call over a unix socket, two
 * processes that wake each other, and memcpy. Other load on the machine can only add to a time, so the best round of
 * the calls counts; of copies, which are compared with memcpy, the median.
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../libcuda/core/futex.h"
#include "bench.h"
#include "latency.h"

EMBED_PTX(vectoradd);

enum { Rounds = 5, Calls = 40000, SlowCalls = 200, FirstCalls = 12, Batch = 1000, Batches = 300 };
#define MIB ((size_t)1 << 20)

static bool json, first = true;
static CUstream stream;
static CUevent event;

/* Prints one figure; peer is the reference value, NAN for none. */
static void figure(const char *name, double value, const char *unit, double peer)
{
	if (!json) {
		printf("%-44s %12.4g %-8s", name, value, unit);
		if (!isnan(peer))
			printf(" peer %10.4g  ratio %8.3g", peer, value / peer);
		putchar('\n');
		return;
	}
	printf("%s\n{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"", first ? "" : ",", name, value, unit);
	if (!isnan(peer))
		printf(", \"peer\": %.6g, \"ratio\": %.6g", peer, value / peer);
	putchar('}');
	first = false;
}

/* A p50 and a p99 in ns. */
struct times { double p50, p99; };

static void figures(const char *name, struct times t, struct times peer)
{
	char full[120];

	snprintf(full, sizeof full, "%s, p50", name);
	figure(full, t.p50, "ns", peer.p50);
	snprintf(full, sizeof full, "%s, p99", name);
	figure(full, t.p99, "ns", peer.p99);
}

static const struct times none = { NAN, NAN };

/* Times a call many times, with a pause before each if pause isn't 0. */
static struct times time_round(void (*call)(void), int calls, int64_t pause)
{
	struct latency *l = bench_allocate(1, sizeof *l);
	struct timespec t = { pause / 1000000000, pause % 1000000000 };

	for (int i = 0; i < calls; i++) {
		if (pause)
			nanosleep(&t, NULL);
		int64_t begin = bench_now();
		call();
		latency_add(l, bench_now() - begin);
	}
	struct times r = { (double)latency_percentile(l, 0.50), (double)latency_percentile(l, 0.99) };
	free(l);
	return r;
}

/* The best of some rounds, after a warm-up round. */
static struct times time_calls(void (*call)(void), int calls, int64_t pause)
{
	time_round(call, calls / 10, pause);
	struct times best = time_round(call, calls, pause);
	for (int i = 1; i < Rounds; i++) {
		struct times t = time_round(call, calls, pause);
		best.p50 = t.p50 < best.p50 ? t.p50 : best.p50;
		best.p99 = t.p99 < best.p99 ? t.p99 : best.p99;
	}
	return best;
}

/*
 * The peers: as many bytes to another process and back over a unix socket, served by a plain loop in C or by the
 * program given as --rpc.
 */

static int peer_socket;

static void rpc(void)
{
	char message[64] = { 0 };

	if (write(peer_socket, message, sizeof message) != sizeof message ||
	    read(peer_socket, message, sizeof message) != sizeof message) {
		perror("unix socket");
		exit(1);
	}
}

static void echo(int fd)
{
	char message[64];
	ssize_t n;

	while ((n = read(fd, message, sizeof message)) > 0)
		if (write(fd, message, (size_t)n) != n)
			break;
	_exit(0);
}

static struct times time_echo(struct times (*times)(void (*)(void), int, int64_t), int calls, int64_t pause)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
		perror("socketpair");
		exit(1);
	}
	pid_t child = fork();
	if (child == 0) {
		close(pair[0]);
		echo(pair[1]);
	}
	close(pair[1]);
	peer_socket = pair[0];
	struct times t = times(rpc, calls, pause);
	close(pair[0]);
	waitpid(child, NULL, 0);
	return t;
}

static struct times time_rpc(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	peer_socket = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (connect(peer_socket, (struct sockaddr *)&a, sizeof a) != 0) {
		perror(path);
		exit(1);
	}
	struct times t = time_calls(rpc, Calls / 8, 0);
	close(peer_socket);
	return t;
}

/*
 * The lower bound of waking: a process sleeps on a futex until a word signals a call, and answers in another word,
 * which the caller polls without sleeping.
 */

struct bell { _Atomic uint32_t call, answer; };
static struct bell *bell;

static void ring(void)
{
	uint32_t n = atomic_load(&bell->call) + 1;

	atomic_store(&bell->call, n);
	futex_wake(&bell->call, 1);
	while (atomic_load(&bell->answer) != n)
		cpu_relax();
}

static struct times time_wake(int64_t pause)
{
	bell = mmap(NULL, sizeof *bell, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (bell == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	pid_t child = fork();
	if (child == 0) {
		for (uint32_t seen = 0;; atomic_store(&bell->answer, seen)) {
			while (atomic_load(&bell->call) == seen)
				futex_wait(&bell->call, seen);
			seen = atomic_load(&bell->call);
		}
	}
	struct times t = time_calls(ring, SlowCalls, pause);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	munmap(bell, sizeof *bell);
	return t;
}

/* The calls */

/* Nothing is queued: the host answers at once. */
static void null_call(void)
{
	CHECK(cuCtxSynchronize());
}

static void local_call(void)
{
	CUcontext context;

	CHECK(cuCtxGetCurrent(&context));
}

static void queued_call(void)
{
	CHECK(cuEventRecord(event, stream));
}

static CUfunction nothing;

static void launch_and_wait(void)
{
	CUdeviceptr none = 0;
	unsigned n = 0;
	void *args[] = { &none, &none, &none, &n };

	CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
	CHECK(cuStreamSynchronize(stream));
}

/* Short-lived memory: from the host, and from a pool that keeps its memory. */

static void allocate_and_free(void)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, MIB));
	CHECK(cuMemFree(p));
}

static void allocate_and_free_in_stream(void)
{
	CUdeviceptr p;

	CHECK(cuMemAllocAsync(&p, MIB, stream));
	CHECK(cuMemFreeAsync(p, stream));
}

static void measure_memory(void)
{
	CUmemoryPool pool;
	cuuint64_t all = UINT64_MAX;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	struct times host = time_calls(allocate_and_free, Calls / 10, 0);
	figures("allocate and free 1 MiB", host, none);
	figures("allocate and free 1 MiB in a stream", time_calls(allocate_and_free_in_stream, Calls, 0), host);
	CHECK(cuMemPoolTrimTo(pool, 0));
}

/* A hundred kernels in sequence: as launches, and as a graph. */

enum { GraphKernels = 100 };

static CUgraphExec hundred;

static void launch_hundred(void)
{
	CUdeviceptr none = 0;
	unsigned n = 0;
	void *args[] = { &none, &none, &none, &n };

	for (int i = 0; i < GraphKernels; i++)
		CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
}

static void launch_graph(void) { CHECK(cuGraphLaunch(hundred, stream)); }

static void wait_for_stream(void) { CHECK(cuStreamSynchronize(stream)); }

static void hundred_and_wait(void)
{
	launch_hundred();
	wait_for_stream();
}

static void graph_and_wait(void)
{
	launch_graph();
	wait_for_stream();
}

/* Measures the time that the program spends inside an asynchronous call. */
static double time_inside(void (*call)(void))
{
	struct latency *l = bench_allocate(1, sizeof *l);

	for (int i = 0; i < Calls / 100; i++) {
		int64_t begin = bench_now();
		call();
		latency_add(l, bench_now() - begin);
		wait_for_stream();
	}
	double p50 = (double)latency_percentile(l, 0.50);
	free(l);
	return p50;
}

static void measure_graph(void)
{
	CUgraph graph;

	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launch_hundred();
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiate(&hundred, graph, 0));
	CHECK(cuGraphDestroy(graph));
	figure("100 empty kernels as a graph, time inside the library, p50", time_inside(launch_graph), "ns", time_inside(launch_hundred));
	struct times apart = time_calls(hundred_and_wait, Calls / 100, 0);
	figures("100 empty kernels as a graph, launch and wait", time_calls(graph_and_wait, Calls / 100, 0), apart);
	CHECK(cuGraphExecDestroy(hundred));
}

/* Pauses after which the poller sleeps, and its processor is in a light or a deep idle state. */
enum { ShortPause = 1000000, LongPause = 5000000 };

static void measure_calls(struct times echoed, struct times asked, const struct times woken[2])
{
	figures("null call over a unix socket, bare echo in C", echoed, none);
	if (!isnan(asked.p50))
		figures("null call over a unix socket, server in Go", asked, none);
	struct times t = time_calls(null_call, Calls, 0);
	figures("synchronous call, both sides polling", t, isnan(asked.p50) ? echoed : asked);
	figure("unix socket RPC over synchronous call, p50", (isnan(asked.p50) ? echoed : asked).p50 / t.p50, "times", NAN);
	figures("bare futex wake-up, 1 ms asleep", woken[0], none);
	figures("bare futex wake-up, 5 ms asleep", woken[1], none);
	figures("synchronous call, poller parked, 1 ms pause", time_calls(null_call, SlowCalls, ShortPause), woken[0]);
	figures("synchronous call, poller parked, 5 ms pause", time_calls(null_call, SlowCalls, LongPause), woken[1]);
	figures("empty kernel, launch and wait", time_calls(launch_and_wait, Calls / 10, 0), none);
	measure_memory();
}

/*
 * The first call after some seconds of idleness, against a message to another process and back after the same time,
 * which is the cost of waking alone.
 */
static void measure_first(struct times echoed, unsigned seconds)
{
	char name[80];

	figures("synchronous call, busy", time_round(null_call, SlowCalls, 0), none);
	snprintf(name, sizeof name, "null call over a unix socket after %u s", seconds);
	figures(name, echoed, none);
	snprintf(name, sizeof name, "synchronous call after %u s", seconds);
	figures(name, time_round(null_call, FirstCalls, seconds * INT64_C(1000000000)), echoed);
}

static double least(double a, double b) { return a == 0 || b < a ? b : a; }

/*
 * Calls in batches that fit in the ring: the time that the library takes for one, and the throughput when the host has
 * to keep up.
 */
static void measure_queued(void)
{
	double inside = 0, through = 0, local = 0, n = Batches * (double)Batch;

	for (int round = 0; round < Rounds; round++) {
		int64_t sum = 0;
		for (int i = 0; i < Batches; i++) {
			int64_t begin = bench_now();
			for (int j = 0; j < Batch; j++)
				queued_call();
			sum += bench_now() - begin;
			CHECK(cuStreamSynchronize(stream));
		}
		inside = least(inside, (double)sum / n);

		int64_t begin = bench_now();
		for (int i = 0; i < Batches * Batch; i++)
			queued_call();
		CHECK(cuStreamSynchronize(stream));
		through = least(through, (double)(bench_now() - begin) / n);

		begin = bench_now();
		for (int i = 0; i < Batches * Batch; i++)
			local_call();
		local = least(local, (double)(bench_now() - begin) / n);
	}
	figure("queued call, time inside the library", inside, "ns", NAN);
	figure("queued calls on one ring", 1e3 / through, "M/s", NAN);
	figure("call that the library answers", local, "ns", NAN);
}

/* Copies */

struct copy {
	CUdeviceptr device;
	char *from, *to; /* host memory */
	size_t bytes;
};

static void to_device(struct copy *c) { CHECK(cuMemcpyHtoD(c->device, c->from, c->bytes)); }
static void to_host(struct copy *c) { CHECK(cuMemcpyDtoH(c->to, c->device, c->bytes)); }
static void plain(struct copy *c) { memcpy(c->to, c->from, c->bytes); }

/* The median bandwidth in GB/s. */
static double bandwidth(void (*copy)(struct copy *), struct copy *c)
{
	struct latency *l = bench_allocate(1, sizeof *l);

	copy(c);
	for (size_t done = 0; done < 256 * MIB; done += c->bytes) {
		int64_t begin = bench_now();
		copy(c);
		latency_add(l, bench_now() - begin);
	}
	double gbs = (double)c->bytes / (double)latency_percentile(l, 0.5);
	free(l);
	return gbs;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double v[Rounds])
{
	qsort(v, Rounds, sizeof *v, by_size);
	return v[Rounds / 2];
}

static void measure_copies(size_t bytes)
{
	struct copy c = { .bytes = bytes }, pinned = { .bytes = bytes };
	void *p;

	c.from = bench_allocate(bytes, 1);
	c.to = bench_allocate(bytes, 1);
	memset(c.from, 1, bytes);
	memset(c.to, 1, bytes);
	c.device = pinned.device = bench_upload(c.from, bytes);
	CHECK(cuMemAllocHost(&p, bytes));
	pinned.from = pinned.to = memset(p, 2, bytes);

	const struct {
		const char *name;
		void (*copy)(struct copy *);
		struct copy *c;
	} kinds[] = {
		{ "copy to device, %zu MiB, pinned", to_device, &pinned },
		{ "copy to host, %zu MiB, pinned", to_host, &pinned },
		{ "copy to device, %zu MiB, pageable", to_device, &c },
		{ "copy to host, %zu MiB, pageable", to_host, &c },
	};
	enum { Kinds = sizeof kinds / sizeof *kinds };
	double gbs[Kinds][Rounds], ratio[Kinds][Rounds];
	for (int round = 0; round < Rounds; round++)
		for (int i = 0; i < Kinds; i++) { /* each right after its peer: processors change their clock rate */
			double peer = bandwidth(plain, &c);
			gbs[i][round] = bandwidth(kinds[i].copy, kinds[i].c);
			ratio[i][round] = gbs[i][round] / peer;
		}
	for (int i = 0; i < Kinds; i++) {
		char name[80];
		double value = median(gbs[i]);
		snprintf(name, sizeof name, kinds[i].name, bytes / MIB);
		figure(name, value, "GB/s", value / median(ratio[i]));
	}
	CHECK(cuMemFreeHost(p));
	CHECK(cuMemFree(c.device));
	free(c.from);
	free(c.to);
}

static void measure_all_copies(void)
{
	measure_copies(MIB);
	measure_copies(16 * MIB);
	measure_copies(64 * MIB);
}

static const char usage[] =
	"usage: calls [--json] [--rpc SOCKET | --copies | --first SECONDS | --idle SECONDS]\n"
	"  --rpc SOCKET    the server that answers packets there is the peer of synchronous calls\n"
	"  --copies        measure copies only\n"
	"  --first SECONDS measure the first call after so long without one\n"
	"  --idle SECONDS  measure nothing: get ready, and do nothing for so long\n";

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	const char *socket_path = NULL;
	bool copies = false;
	unsigned idle = 0, pause = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			json = true;
		} else if (strcmp(argv[i], "--copies") == 0) {
			copies = true;
		} else if (strcmp(argv[i], "--rpc") == 0 && i + 1 < argc) {
			socket_path = argv[++i];
		} else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc) {
			pause = (unsigned)strtoul(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--idle") == 0 && i + 1 < argc) {
			idle = (unsigned)strtoul(argv[++i], NULL, 10);
		} else {
			fputs(usage, stderr);
			return 2;
		}
	}
	struct times echoed = none, asked = none, woken[2] = { none, none };
	if (pause > 0) { /* forks, so it runs before the driver starts */
		echoed = time_echo(time_round, FirstCalls, pause * INT64_C(1000000000));
	} else if (!copies && idle == 0) {
		echoed = time_echo(time_calls, Calls / 8, 0);
		if (socket_path)
			asked = time_rpc(socket_path);
		woken[0] = time_wake(ShortPause);
		woken[1] = time_wake(LongPause);
	}

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, ptx_vectoradd));
	CHECK(cuModuleGetFunction(&nothing, module, "vectorAdd"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));

	if (json)
		putchar('[');
	if (idle > 0) {
		launch_and_wait();
		sleep(idle);
	} else if (pause > 0) {
		measure_first(echoed, pause);
	} else {
		if (!copies) {
			measure_calls(echoed, asked, woken);
			measure_graph();
			measure_queued();
		}
		measure_all_copies();
	}
	if (json)
		puts("\n]");

	CHECK(cuEventDestroy(event));
	CHECK(cuStreamDestroy(stream));
	CHECK(cuModuleUnload(module));
	CHECK(cuDevicePrimaryCtxRelease(device));
	return 0;
}
