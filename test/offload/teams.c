/* OpenMP: what target regions can hold, one thing after the other; and that they were on the device. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4096, ROWS = 24, COLUMNS = 50 };

#pragma omp declare target
static int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
static long total;

static unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static int twice(int x) { return 2 * x; }
static int square(int x) { return x * x; }
static int (*const operations[2])(int) = {twice, square};

static void sort(int *a, int n, int (*before)(int, int))
{
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0 && before(a[j], a[j - 1]); j--) {
			int t = a[j];
			a[j] = a[j - 1];
			a[j - 1] = t;
		}
}

static int less(int a, int b) { return a < b; }
static int more(int a, int b) { return a > b; }
#pragma omp end declare target

static void reductions(void)
{
	long sum = 0;
	int least = 1 << 30, most = -1, all = -1, any = 0, odd = 0;
	double product = 1;
#pragma omp target teams distribute parallel for reduction(+ : sum) reduction(min : least) reduction(max : most) \
	reduction(& : all) reduction(| : any) reduction(^ : odd) reduction(* : product) map(tofrom : sum, least, most, all, any, odd, product)
	for (int i = 0; i < N; i++) {
		int v = i * 7919 % 10007;
		sum += v;
		least = v < least ? v : least;
		most = v > most ? v : most;
		all &= v | 0x7000;
		any |= v & 0x1234;
		odd ^= v;
		if (i % 512 == 0)
			product *= 2;
	}
	printf("reductions %ld %d %d %x %x %x %g\n", sum, least, most, all, any, odd, product);
}

static void loops(void)
{
	static double m[ROWS][COLUMNS], line[N];
	double norm = 0;
#pragma omp target data map(from : m, line)
	{
#pragma omp target teams distribute parallel for collapse(2) num_teams(5) thread_limit(96) schedule(static, 3)
		for (int i = 0; i < ROWS; i++)
			for (int j = 0; j < COLUMNS; j++)
				m[i][j] = i * 100 + j;
#pragma omp target teams distribute dist_schedule(static, 4)
		for (int i = 0; i < ROWS; i++) {
			double sum = 0;
#pragma omp parallel for simd reduction(+ : sum) schedule(dynamic, 8)
			for (int j = 0; j < COLUMNS; j++)
				sum += m[i][j];
			m[i][0] = sum;
		}
#pragma omp target parallel for simd map(tofrom : norm) reduction(+ : norm) schedule(guided)
		for (int i = 0; i < N; i++) {
			line[i] = i % 32 * 0.25;
			norm += line[i] * line[i];
		}
	}
	double first = 0;
	for (int i = 0; i < ROWS; i++)
		first += m[i][0];
	printf("loops %.2f %.2f %.2f %.2f\n", first, m[7][9], norm, line[31]);
}

static void inside(void)
{
	int threads = 0, ones = 0, sections = 0, ordered[40], at = 0, critical = 0;
#pragma omp target map(tofrom : threads, ones, sections, ordered, at, critical)
	{
#pragma omp parallel num_threads(6)
		{
#pragma omp atomic
			threads++;
#pragma omp barrier
#pragma omp single
			ones += threads;
#pragma omp sections
			{
#pragma omp section
				{
#pragma omp atomic
					sections += 1;
				}
#pragma omp section
				{
#pragma omp atomic
					sections += 10;
				}
			}
#pragma omp for ordered schedule(static, 1)
			for (int i = 0; i < 40; i++) {
				int v = i * i;
#pragma omp ordered
				ordered[at++] = v;
			}
#pragma omp critical
			critical += critical + 1;
		}
	}
	int right = 0;
	for (int i = 0; i < 40; i++)
		right += ordered[i] == i * i;
	printf("inside %d %d %d %d %d\n", threads, ones, sections, right, critical);
}

static void functions(void)
{
	unsigned fib = 0;
	int called[8], up[16], down[16], spread = 0;
#pragma omp target map(tofrom : fib, spread) map(from : called, up, down)
	{
		fib = fibonacci(15);
		for (int i = 0; i < 8; i++)
			called[i] = operations[i & 1](i + 3);
		int *copy = malloc(16 * sizeof *copy);
		for (int i = 0; i < 16; i++)
			up[i] = copy[i] = table[i];
		sort(up, 16, less);
		sort(copy, 16, more);
		for (int i = 0; i < 16; i++)
			down[i] = copy[i];
		free(copy);
	}
#pragma omp target teams distribute parallel for reduction(+ : spread) map(tofrom : spread)
	for (int i = 0; i < 300; i++) {
		int *cell = malloc(sizeof *cell);
		*cell = operations[i % 2](i) + (int)fibonacci(i % 9);
		spread += *cell;
		free(cell);
	}
	printf("functions %u %d", fib, spread);
	for (int i = 0; i < 8; i++)
		printf(" %d", called[i]);
	for (int i = 0; i < 16; i++)
		printf(" %d/%d", up[i], down[i]);
	printf("\n");
}

static void memory(void)
{
	int device = omp_get_default_device(), host = omp_get_initial_device();
	int *data = malloc(N * sizeof *data), *there = omp_target_alloc(N * sizeof *there, device);
	for (int i = 0; i < N; i++)
		data[i] = i;
	omp_target_memcpy(there, data, N * sizeof *data, 0, 0, device, host);
#pragma omp target teams distribute parallel for is_device_ptr(there)
	for (int i = 0; i < N; i++)
		there[i] = there[i] * 2 + table[i & 15];
	omp_target_memcpy(data, there, N * sizeof *data, 0, 0, host, device);
	omp_target_free(there, device);
	long sum = 0;
	for (int i = 0; i < N; i++)
		sum += data[i];
	total = 7;
#pragma omp target update to(total)
#pragma omp target teams distribute parallel for
	for (int i = 0; i < N; i++)
#pragma omp atomic
		total += i;
#pragma omp target update from(total)
	printf("memory %ld %ld\n", sum, total);
	free(data);
}

static void tasks(void)
{
	static int a[N], b[N];
#pragma omp target teams distribute parallel for nowait depend(out : a) map(from : a)
	for (int i = 0; i < N; i++)
		a[i] = i;
#pragma omp target teams distribute parallel for nowait depend(in : a) depend(out : b) map(to : a) map(from : b)
	for (int i = 0; i < N; i++)
		b[i] = a[i] * a[i] % 1000;
#pragma omp taskwait
	long sum = 0;
	for (int i = 0; i < N; i++)
		sum += a[i] + b[i];
	printf("tasks %ld\n", sum);
}

/* Functions that a simd loop calls have a stack for each lane. */
static void waves(void)
{
	static float wave[1000];
#pragma omp target teams distribute parallel for simd map(from : wave)
	for (int i = 0; i < 1000; i++)
		wave[i] = cosf(i);
	double sum = 0;
	for (int i = 0; i < 1000; i++)
		sum += wave[i] * i;
	printf("waves %.0f\n", sum);
}

static void crowd(void)
{
	int seen[300];
#pragma omp target teams num_teams(300) thread_limit(32) map(from : seen)
	seen[omp_get_team_num()] = omp_get_team_num() * 3;
	int right = 0;
	for (int i = 0; i < 300 && seen[i] == i * 3; i++)
		right++;
	printf("crowd %s\n", right > 0 ? "right" : "wrong");
}

int main(void)
{
	int initial = 1;
#pragma omp target map(from : initial)
	initial = omp_is_initial_device();
	fprintf(stderr, "%s\n", initial ? "on the host" : "on the device");
	reductions();
	loops();
	inside();
	functions();
	memory();
	tasks();
	waves();
	crowd();
	return 0;
}
