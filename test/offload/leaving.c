/* Ends while its queues have work: libgomp frees that work's memory by callbacks, and destroys queues and context at the program's end. */
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 16, LAUNCHES = 12 };

int main(void)
{
	float *a = malloc(COUNT * sizeof *a), sum = 0;
	for (int i = 0; i < COUNT; i++)
		sum += a[i] = (float)(i % 8);
#pragma acc enter data copyin(a[0:COUNT])
	for (int k = 0; k < LAUNCHES; k++) {
#pragma acc parallel loop async(k % 4) present(a[0:COUNT])
		for (int i = 0; i < COUNT; i++)
			for (int j = 0; j < 20; j++)
				a[i] = a[i] * 0.5f + (float)j;
	}
	printf("leaving with %g\n", sum);
	return 0;
}
