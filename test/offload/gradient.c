/* OpenACC: conjugate gradients for a sparse system. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 40, N = SIDE * SIDE, MOST = 5 * N };

static int starts[N + 1], columns[MOST];
static double values[MOST], x[N], b[N], r[N], p[N], q[N];

static void laplace(void)
{
	int k = 0;
	for (int i = 0; i < N; i++) {
		starts[i] = k;
		int row = i / SIDE, column = i % SIDE;
		int near[5] = {row > 0 ? i - SIDE : -1, column > 0 ? i - 1 : -1, i, column < SIDE - 1 ? i + 1 : -1,
			row < SIDE - 1 ? i + SIDE : -1};
		for (int n = 0; n < 5; n++)
			if (near[n] >= 0) {
				columns[k] = near[n];
				values[k++] = near[n] == i ? 4 : -1;
			}
		b[i] = (i * 7 % 11) - 5;
	}
	starts[N] = k;
}

static double dot(const double *u, const double *v)
{
	double sum = 0;
#pragma acc parallel loop reduction(+ : sum) present(u[0:N], v[0:N])
	for (int i = 0; i < N; i++)
		sum += u[i] * v[i];
	return sum;
}

static void multiply(void)
{
#pragma acc parallel loop gang worker present(starts, columns, values, p, q)
	for (int i = 0; i < N; i++) {
		double sum = 0;
#pragma acc loop vector reduction(+ : sum)
		for (int k = starts[i]; k < starts[i + 1]; k++)
			sum += values[k] * p[columns[k]];
		q[i] = sum;
	}
}

int main(void)
{
	laplace();
	int steps = 0;
	double rr;
#pragma acc data copyin(starts, columns, values, b) copyout(x) create(r, p, q)
	{
#pragma acc parallel loop
		for (int i = 0; i < N; i++) {
			x[i] = 0;
			r[i] = p[i] = b[i];
		}
		rr = dot(r, r);
		while (rr > 1e-18 && steps < 300) {
			multiply();
			double a = rr / dot(p, q);
#pragma acc parallel loop
			for (int i = 0; i < N; i++) {
				x[i] += a * p[i];
				r[i] -= a * q[i];
			}
			double next = dot(r, r), beta = next / rr;
			rr = next;
#pragma acc parallel loop
			for (int i = 0; i < N; i++)
				p[i] = r[i] + beta * p[i];
			steps++;
		}
	}
	double worst = 0;
	for (int i = 0; i < N; i++) {
		double left = b[i];
		for (int k = starts[i]; k < starts[i + 1]; k++)
			left -= values[k] * x[columns[k]];
		worst = fmax(worst, fabs(left));
	}
	printf("%s, residue %s\n", steps < 300 ? "solved" : "unsolved", worst < 1e-8 ? "small" : "large");
	for (int i = 0; i < N; i += 97)
		printf("%.7f\n", x[i]);
	return 0;
}
