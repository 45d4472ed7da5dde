/* OpenACC: reductions of all kinds, levels of parallelism, asynchronous queues, data regions, routines, atomics. */
#include <math.h>
#include <openacc.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 10000, ROWS = 60, COLUMNS = 130, DEEP = 7 };

static int counter;
#pragma acc declare create(counter)
static const int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
#pragma acc declare copyin(primes)

#pragma acc routine seq
static unsigned mix(unsigned x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	return x * 0x846ca68bu ^ x >> 9;
}

#pragma acc routine vector
static double row_sum(const double *row, int n)
{
	double sum = 0;
#pragma acc loop vector reduction(+ : sum)
	for (int i = 0; i < n; i++)
		sum += row[i];
	return sum;
}

#pragma acc routine seq
static int next(void)
{
	int seen;
#pragma acc atomic capture
	seen = counter++;
	return seen;
}

static void reductions(void)
{
	int sum = 0, product = 1, least = 1 << 30, most = -1, all = 1, any = 0, low = -1, odd = 0;
	long wide = 0;
	unsigned bits = 0;
	float small = 0;
	double big = 1e300;
	unsigned char byte = 0;
#pragma acc parallel loop reduction(+ : sum, wide, small, byte) reduction(* : product) reduction(min : least, big) \
	reduction(max : most) reduction(&& : all) reduction(|| : any) reduction(& : low) reduction(| : bits) reduction(^ : odd)
	for (int i = 0; i < N; i++) {
		int v = (int)(mix(i) % 1000);
		sum += v;
		wide += (long)v << 30;
		small += (float)(v & 7);
		byte += (unsigned char)v;
		product *= (v & 1) ? 3 : 5;
		least = v < least ? v : least;
		big = fmin(big, sqrt((double)v + 1));
		most = v > most ? v : most;
		all = all && v >= 0;
		any = any || v == 999;
		low &= ~(v & 0x40);
		bits |= 1u << (v & 31);
		odd ^= v;
	}
	printf("reductions %d %ld %g %d %d %d %g %d %d %d %x %x %x\n", sum, wide, small, byte, product, least, big, most, all, any,
		low, bits, odd);
}

static void levels(void)
{
	static double m[ROWS][COLUMNS], rows[ROWS], cube[DEEP][ROWS][COLUMNS];
#pragma acc data copyout(m, cube) copy(rows)
	{
#pragma acc parallel loop gang worker vector collapse(2)
		for (int i = 0; i < ROWS; i++)
			for (int j = 0; j < COLUMNS; j++)
				m[i][j] = i * 1000 + j;
#pragma acc parallel loop gang num_gangs(8) vector_length(32)
		for (int i = 0; i < ROWS; i++)
			rows[i] = row_sum(m[i], COLUMNS);
#pragma acc parallel loop gang num_gangs(5) num_workers(4) vector_length(32)
		for (int k = 0; k < DEEP; k++) {
			double scale = k + 0.5;
#pragma acc loop worker
			for (int i = 0; i < ROWS; i++) {
				double most = 0;
#pragma acc loop vector reduction(max : most)
				for (int j = 0; j < COLUMNS; j++)
					most = fmax(most, m[i][j]);
#pragma acc loop vector
				for (int j = 0; j < COLUMNS; j++)
					cube[k][i][j] = scale * m[i][j] + most;
			}
		}
	}
	double sum = 0, total = 0;
	for (int i = 0; i < ROWS; i++)
		sum += rows[i];
	for (int k = 0; k < DEEP; k++)
		for (int i = 0; i < ROWS; i++)
			for (int j = 0; j < COLUMNS; j++)
				total += cube[k][i][j];
	printf("levels %.1f %.1f %.1f\n", sum, total, cube[3][2][1]);
}

static void queues(void)
{
	enum { QUEUES = 4, STEPS = 10 };
	static int data[QUEUES][N];
#pragma acc enter data create(data)
	for (int q = 0; q < QUEUES; q++) {
#pragma acc parallel loop async(q) present(data)
		for (int i = 0; i < N; i++)
			data[q][i] = i + q;
		for (int s = 1; s <= STEPS; s++) {
#pragma acc parallel loop async(q) present(data)
			for (int i = 0; i < N; i++)
				data[q][i] = data[q][i] * 3 + s;
		}
	}
#pragma acc wait(0, 1) async(2)
#pragma acc parallel loop async(2) present(data)
	for (int i = 0; i < N; i++)
		data[2][i] += data[0][i] ^ data[1][i];
	for (int q = 0; q < QUEUES; q++) {
#pragma acc update host(data[q:1]) async(q)
	}
#pragma acc wait
#pragma acc exit data delete (data)
	unsigned hash = 0;
	for (int q = 0; q < QUEUES; q++)
		for (int i = 0; i < N; i++)
			hash = hash * 31 + (unsigned)data[q][i];
	printf("queues %u %d\n", hash, acc_async_test_all());
}

static void atomics(void)
{
	int buckets[16] = {0}, last = 0;
	long wide = 0;
	double sum = 0;
	float small = 0;
	counter = 5;
	acc_update_device(&counter, sizeof counter);
#pragma acc parallel loop copy(buckets, last, wide, sum, small)
	for (int i = 0; i < N; i++) {
		unsigned r = mix(i);
#pragma acc atomic update
		buckets[r & 15]++;
#pragma acc atomic update
		wide += r;
#pragma acc atomic update
		sum += r & 255;
#pragma acc atomic update
		small += 1;
		int seen = next();
		if (seen == N + 4) {
#pragma acc atomic write
			last = seen;
		}
	}
	acc_update_self(&counter, sizeof counter);
	printf("atomics %d %d %ld %.1f %.1f:", counter, last, wide, sum, small);
	for (int i = 0; i < 16; i++)
		printf(" %d", buckets[i]);
	printf("\n");
}

struct shape {
	char tag;
	short s;
	double v[3];
};

static void aggregates(void)
{
	static struct shape shapes[500];
	int offset = 7, picked[8];
#pragma acc parallel loop copyout(shapes) firstprivate(offset)
	for (int i = 0; i < 500; i++) {
		struct shape s = {(char)('a' + i % 26), (short)(i * 77 - 9000), {i / 4.0, i % 5 - 2.5, offset}};
		shapes[i] = s;
	}
#pragma acc kernels copyout(picked)
	for (int i = 0; i < 8; i++)
		picked[i] = primes[7 - i] * offset;
	long tags = 0, shorts = 0;
	double sum = 0;
	for (int i = 0; i < 500; i++) {
		tags += shapes[i].tag;
		shorts += shapes[i].s;
		sum += shapes[i].v[0] * shapes[i].v[1] + shapes[i].v[2];
	}
	printf("aggregates %ld %ld %.3f %d %d\n", tags, shorts, sum, picked[0], picked[7]);
}

static void memory(void)
{
	int *host = malloc(N * sizeof *host), *device = acc_malloc(N * sizeof *host);
	for (int i = 0; i < N; i++)
		host[i] = i;
	acc_memcpy_to_device(device, host, N * sizeof *host);
#pragma acc parallel loop deviceptr(device)
	for (int i = 0; i < N; i++)
		device[i] = N - device[i];
	acc_memcpy_from_device(host, device, N * sizeof *host);
	acc_free(device);
	acc_copyin(host, N * sizeof *host);
	int there = acc_is_present(host, N * sizeof *host);
	acc_delete(host, N * sizeof *host);
	printf("memory %d %d %d\n", there, host[0], host[N - 1]);
	free(host);
}

int main(void)
{
	reductions();
	levels();
	queues();
	atomics();
	aggregates();
	memory();
	return 0;
}
