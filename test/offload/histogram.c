/* OpenACC: a histogram by atomics, and its running sum. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	enum { N = 200000, BINS = 256 };
	unsigned char *text = malloc(N);
	unsigned bins[BINS], first[BINS], seed = 1;
	for (int i = 0; i < N; i++) {
		seed = seed * 1664525 + 1013904223;
		text[i] = (unsigned char)((seed >> 24 & 127) + (seed >> 12 & 127));
	}
#pragma acc data copyin(text [0:N]) copyout(bins, first)
	{
#pragma acc parallel loop
		for (int b = 0; b < BINS; b++)
			bins[b] = 0;
#pragma acc parallel loop
		for (int i = 0; i < N; i++) {
#pragma acc atomic update
			bins[text[i]]++;
		}
#pragma acc parallel loop
		for (int b = 0; b < BINS; b++) {
			unsigned sum = 0;
#pragma acc loop seq
			for (int i = 0; i < b; i++)
				sum += bins[i];
			first[b] = sum;
		}
	}
	for (int b = 0; b < BINS; b++)
		printf("%d %u %u\n", b, bins[b], first[b]);
	return 0;
}
