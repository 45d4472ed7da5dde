/* The interface between a peer's main program and its way of running kernels. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { MaxParams = 256 };

/* A launch, as it comes through the pipe. */
struct launch {
	uint32_t kernel; /* number in the module */
	uint32_t grid[3], block[3];
	uint32_t used; /* bytes of params */
	unsigned char params[MaxParams] __attribute__((aligned(8)));
};

/* Prepares the kernels. The memory is the device's; the arguments are specific to
 * this way of running kernels. */
void peer_start(void *memory, size_t size, int argc, char **argv);

void peer_launch(const struct launch *l);
