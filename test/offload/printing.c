/* The device's output appears between lines of the host's output, in the order of both. */
#include <stdio.h>

int main(void)
{
	for (int i = 0; i < 3; i++) {
		printf("host %d\n", i);
#pragma omp target map(to : i)
		{
			printf("device %d: %s %5.2f %c %lld %#x\n", i, "text", 1.5 * i, 'a' + i, 1LL << (40 + i), 255u);
			puts("a line");
			for (int k = 0; k < 5; k++)
				printf("%d ", k);
			printf("%s", "\n");
		}
	}
	int said = 0;
#pragma omp target teams distribute parallel for map(tofrom : said)
	for (int i = 0; i < 1000; i++)
		if (i % 499 == 0)
#pragma omp critical
			said += printf("%s", ".\n") > 0;
	printf("%d of three\n", said);
	return 0;
}
