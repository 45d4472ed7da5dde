/*
 * picser is a small image service: it sharpens pictures for a batch client, which always submits the next one, and for
 * a client with priority, which requests one every few milliseconds and waits for it. A picture goes to the device and
 * back. The client with priority waits for one picture of the batch at most.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"
#include "latency.h"
#include "report.h"

EMBED_PTX(picser);

enum { Threads = 256, BetweenMs = 20 };

/* A client: its picture, as it was and as it came back. */
struct client {
	uint8_t *before, *after; /* pinned */
	CUdeviceptr from, to;
	CUstream stream;
	int64_t served;
};

static struct client batch, urgent;
static CUfunction sharpen;
static size_t side;

/* State shared by the urgent client's thread and the service. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t served = PTHREAD_COND_INITIALIZER;
static bool asked, over;
static pthread_t asking;
static struct latency *waits;

static void open_client(struct client *c, uint32_t seed)
{
	void *before, *after;

	CHECK(cuMemAllocHost(&before, side * side));
	CHECK(cuMemAllocHost(&after, side * side));
	c->before = before;
	c->after = after;
	for (size_t i = 0; i < side * side; i++)
		c->before[i] = (uint8_t)bench_random(&seed);
	c->from = bench_upload(NULL, side * side);
	c->to = bench_upload(NULL, side * side);
}

static void close_client(struct client *c)
{
	CHECK(cuMemFree(c->from));
	CHECK(cuMemFree(c->to));
	CHECK(cuMemFreeHost(c->before));
	CHECK(cuMemFreeHost(c->after));
}

/* Requests a picture, waits for it, and pauses, until the run ends. */
static void *ask(void *unused)
{
	struct timespec pause = { .tv_nsec = BetweenMs * 1000000 };

	pthread_mutex_lock(&lock);
	while (!over) {
		int64_t begin = bench_now();
		asked = true;
		while (asked && !over)
			pthread_cond_wait(&served, &lock);
		if (!asked)
			latency_add(waits, bench_now() - begin);
		pthread_mutex_unlock(&lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return unused;
}

static void prepare(struct bench *x)
{
	int least, greatest;

	side = x->options.size;
	open_client(&batch, 1);
	open_client(&urgent, 2);
	batch.stream = x->stream;
	CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(cuStreamCreateWithPriority(&urgent.stream, CU_STREAM_NON_BLOCKING, greatest));
	sharpen = bench_function(x, "sharpen");
	waits = bench_allocate(1, sizeof *waits);
	x->work = 1;
	if (pthread_create(&asking, NULL, ask, NULL) != 0)
		abort();
}

/* Queues the copies and the kernel of a picture. */
static void queue(struct client *c)
{
	unsigned n = (unsigned)side;
	void *args[] = { &c->from, &c->to, &n };

	CHECK(cuMemcpyHtoDAsync(c->from, c->before, side * side, c->stream));
	CHECK(cuLaunchKernel(sharpen, bench_blocks(side * side, Threads, 1024), 1, 1, Threads, 1, 1, 0, c->stream, args, NULL));
	CHECK(cuMemcpyDtoHAsync(c->after, c->to, side * side, c->stream));
	c->served++;
}

/* Launches one picture of the batch, after the requested one. */
static void launch(struct bench *x)
{
	(void)x;
	pthread_mutex_lock(&lock);
	bool first = asked;
	pthread_mutex_unlock(&lock);
	if (first) {
		queue(&urgent);
		CHECK(cuStreamSynchronize(urgent.stream));
		pthread_mutex_lock(&lock);
		asked = false;
		pthread_cond_signal(&served);
		pthread_mutex_unlock(&lock);
	}
	queue(&batch);
}

static int at(const uint8_t *p, long row, long column)
{
	long n = (long)side;

	row = row < 0 ? 0 : row < n ? row : n - 1;
	column = column < 0 ? 0 : column < n ? column : n - 1;
	return p[row * n + column];
}

static bool sharp(const struct client *c)
{
	bool right = true;

	for (long i = 0; c->served > 0 && i < (long)(side * side) && right; i++) {
		long row = i / (long)side, column = i % (long)side;
		const uint8_t *p = c->before;
		int v = 5 * at(p, row, column) - at(p, row - 1, column) - at(p, row + 1, column) - at(p, row, column - 1) - at(p, row, column + 1);
		right = bench_close("pixel", (size_t)i, c->after[i], v < 0 ? 0 : v > 255 ? 255 : v, 0);
	}
	return right;
}

static bool check(struct bench *x)
{
	(void)x;
	return sharp(&batch) && sharp(&urgent);
}

static void details(struct bench *x)
{
	(void)x;
	pthread_mutex_lock(&lock);
	report_number("urgent_pictures", (double)waits->count);
	report_number("urgent_p50_ns", (double)latency_percentile(waits, 0.5));
	report_number("urgent_p99_ns", (double)latency_percentile(waits, 0.99));
	pthread_mutex_unlock(&lock);
}

static void release(struct bench *x)
{
	(void)x;
	pthread_mutex_lock(&lock);
	over = true;
	pthread_cond_signal(&served);
	pthread_mutex_unlock(&lock);
	pthread_join(asking, NULL);
	CHECK(cuStreamDestroy(urgent.stream));
	close_client(&batch);
	close_client(&urgent);
	free(waits);
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "picser", .about = "sharpens pictures for a batch client and for one with priority", .unit = "pictures", .size_means = "pixels along a side",
		.ptx = ptx_picser, .size = 1024, .least = 1, .most = 16384,
		.prepare = prepare, .launch = launch, .check = check, .release = release, .details = details,
	};
	return bench_main(argc, argv, &w);
}
