#include "work/occupancy.h"

#include "core/device.h"

enum { REGISTER_UNIT = 256, WARP_UNIT = 4, BLOCKS_USUAL = 16 };

static int64_t by_registers(const struct function *f, int64_t warps)
{
	int64_t registers = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
	if (f->facts.registers <= 0 || registers <= 0)
		return INT32_MAX;
	int64_t perWarp = round_up((int64_t)f->facts.registers * WARP, REGISTER_UNIT);
	return registers / perWarp / WARP_UNIT * WARP_UNIT / round_up(warps, WARP_UNIT);
}

static int64_t by_shared(const struct function *f, uint64_t dynamic)
{
	int64_t shared = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	int64_t reserved = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	int64_t need = round_up(f->facts.staticShared + (int64_t)dynamic + reserved, SHARED_UNIT);
	return need > 0 ? shared / need : INT32_MAX;
}

int64_t occupancy_blocks(const struct function *f, int64_t threads, uint64_t dynamic)
{
	int64_t most = f->maxDynamicShared;
	if (threads > f->facts.maxThreads || dynamic > (uint64_t)(most < 0 ? 0 : most))
		return 0;
	int64_t warps = (threads + WARP - 1) / WARP;
	int64_t resident = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / WARP;
	int64_t blocks = device_attribute(f->device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
	if (blocks <= 0)
		blocks = BLOCKS_USUAL;
	blocks = least(blocks, resident / warps);
	blocks = least(blocks, by_registers(f, warps));
	return least(blocks, by_shared(f, dynamic));
}
