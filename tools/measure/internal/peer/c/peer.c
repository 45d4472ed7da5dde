/* Runs the kernels of a module on request, in memory that it shares with the
 * program that started it, and answers with the processor time that they took, in
 * nanoseconds.
 *
 * Arguments: the size of the memory, its address on the device, and the arguments
 * of peer_start. The memory is file 3. A request is a number of launches, then the
 * launches. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "peer.h"

static uint64_t processor_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	static struct launch launches[64];
	uint32_t count;

	if (argc < 3)
		return 2;
	size_t size = strtoull(argv[1], NULL, 0);
	void *at = (void *)strtoull(argv[2], NULL, 0);
	if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE | MAP_FIXED_NOREPLACE, 3, 0) != at) {
		perror("mmap");
		return 1;
	}
	peer_start(at, size, argc - 3, argv + 3);
	while (fread(&count, sizeof count, 1, stdin) == 1) {
		if (count > sizeof launches / sizeof *launches || fread(launches, sizeof *launches, count, stdin) != count)
			return 1;
		uint64_t start = processor_time();
		for (uint32_t i = 0; i < count; i++)
			peer_launch(&launches[i]);
		uint64_t took = processor_time() - start;
		if (fwrite(&took, sizeof took, 1, stdout) != 1 || fflush(stdout) != 0)
			return 1;
	}
	return 0;
}
