/*
 * The use of the tables of cuGetExportTable by a runtime that is linked into programs, with the same calls of their
 * slots.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

typedef const void *const *slots;
enum { PROBE, INTERFACE, TOOLS, THREADS, STORAGE, CHECKS, INTEGRITY, TABLES };

static const unsigned char table_ids[TABLES][16] = {
	{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9},
	{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
	{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
	{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
	{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
	{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
	{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
};
static const size_t table_slots[TABLES] = {0, 13, 7, 4, 0, 4, 3};

static slots tables_of[TABLES];
static __typeof__(&cuGetExportTable) get_table;

static CUresult ask_table(int which)
{
	CUuuid id;
	const void *table = table_ids;
	memcpy(&id, table_ids[which], sizeof id);
	CUresult r = get_table(&table, &id);
	CLAIM((r == CUDA_SUCCESS) == (table != NULL));
	tables_of[which] = table;
	return r;
}

static void need_table(int which)
{
	CHECK(ask_table(which));
	size_t bytes = table_slots[which] ? (size_t)tables_of[which][0] : sizeof(void *);
	CLAIM(bytes >= table_slots[which] * sizeof(void *) && bytes < 4096 && bytes % sizeof(void *) == 0);
	for (size_t i = 1; i < table_slots[which]; i++)
		CLAIM(tables_of[which][i]); /* none leads nowhere */
}

#define SLOT(table, at, result, ...) ((result(*)(__VA_ARGS__))tables_of[table][at])

static void check_tools(void)
{
	static const struct { int slot; size_t bytes; } buffers[] = {{2, 1024}, {6, 14}};
	for (int i = 0; i < 2; i++) {
		unsigned char *buffer = NULL;
		size_t bytes = 0;
		SLOT(TOOLS, buffers[i].slot, void, unsigned char **, size_t *)(&buffer, &bytes);
		CLAIM(buffer && bytes == buffers[i].bytes);
		for (size_t at = 0; at < bytes; at++)
			CLAIM(buffer[at] == 0);
	}
	SLOT(TOOLS, 1, long, void *, void *)(NULL, NULL);
	SLOT(TOOLS, 4, long, void *, void *)(NULL, NULL);
	SLOT(THREADS, 2, long, void *)(NULL);
}

static void check_contexts(CUcontext c)
{
	uint32_t state = 1;
	const void *more = NULL;
	CHECK(SLOT(CHECKS, 2, CUresult, CUcontext, uint32_t *, const void **)(c, &state, &more));
	CLAIM(state == 0 && SLOT(CHECKS, 3, uint32_t, void)() == 0);
}

static void print_device(CUdevice d)
{
	CUuuid uuid;
	int domain, bus, slot;
	CHECK(cuDeviceGetUuid(&uuid, d));
	CHECK(cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, d));
	CHECK(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d));
	CHECK(cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, d));
	printf("device ");
	for (size_t at = 0; at < sizeof uuid; at++)
		printf("%02x", (unsigned char)uuid.bytes[at]);
	printf(" %d %d %d\n", domain, bus, slot);
}

/* Prints the inputs of the integrity check and its results; the test computes the results, too. */
static void check_integrity(int version, int driver)
{
	unsigned char answer[16];
	uint64_t now = (uint64_t)time(NULL);
	printf("integrity driver %d process %d thread %lu interface %lu table %lu function %lu seconds %lu\n", driver, getpid(),
		(unsigned long)pthread_self(), (unsigned long)tables_of[INTERFACE], (unsigned long)tables_of[INTEGRITY],
		(unsigned long)tables_of[INTEGRITY][1], (unsigned long)now);
	print_device(0);
	for (int i = 0; i < 3; i++) {
		CHECK(SLOT(INTEGRITY, 1, CUresult, uint32_t, uint64_t, void *)((uint32_t)(version + i), now, answer));
		printf("answer %d ", version + i);
		for (size_t at = 0; at < sizeof answer; at++)
			printf("%02x", answer[at]);
		printf("\n");
	}
}

/* --- storage --- */

static int ended;
static CUcontext ended_of;
static uintptr_t ended_values;

static void value_ends(CUcontext c, void *key, void *value)
{
	(void)key;
	ended++;
	ended_of = c;
	ended_values += (uintptr_t)value;
}

#define NUMBER(n) ((void *)(uintptr_t)(n))
#define PUT(c, key, value, ends) SLOT(STORAGE, 0, CUresult, CUcontext, void *, void *, void *)(c, NUMBER(key), NUMBER(value), ends)
#define DELETE(c, key) SLOT(STORAGE, 1, CUresult, CUcontext, void *)(c, NUMBER(key))
#define GET(value, c, key) SLOT(STORAGE, 2, CUresult, void **, CUcontext, void *)(value, c, NUMBER(key))

static void holds(CUcontext c, uintptr_t key, uintptr_t want)
{
	void *value = NULL;
	for (int i = 0; i < 2; i++) {
		CHECK(GET(&value, c, key));
		CLAIM(value == NUMBER(want));
	}
}

static void lacks(CUcontext c, uintptr_t key)
{
	void *value = NUMBER(7);
	EXPECT(CUDA_ERROR_INVALID_HANDLE, GET(&value, c, key));
	CLAIM(value == NUMBER(7));
}

static void *keep_own(void *number)
{
	CUcontext c = NULL;
	uintptr_t base = 1000 * (uintptr_t)number;
	CHECK(cuDevicePrimaryCtxRetain(&c, 0));
	CHECK(cuCtxSetCurrent(c));
	for (uintptr_t round = 0; round < 200; round++)
		for (uintptr_t key = base; key < base + 10; key++) {
			CHECK(PUT(NULL, key, key + round, NULL));
			holds(c, key, key + round);
			CHECK(DELETE(NULL, key));
			lacks(c, key);
		}
	CHECK(cuDevicePrimaryCtxRelease(0));
	return NULL;
}

/* c is current. */
static void check_storage(CUcontext c)
{
	CUcontext second, all_ones = (CUcontext)~(uintptr_t)0;
	lacks(NULL, 1);
	CHECK(PUT(NULL, 1, 11, value_ends));
	holds(c, 1, 11);
	holds(NULL, 1, 11);
	holds(all_ones, 1, 11);
	CHECK(PUT(c, 1, 12, value_ends));
	holds(NULL, 1, 12);
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, PUT((CUcontext)NUMBER(3), 1, 1, NULL));
	CHECK(cuCtxCreate(&second, 0, 0));
	lacks(NULL, 1);
	for (uintptr_t key = 1; key <= 300; key++)
		CHECK(PUT(all_ones, key, key, value_ends));
	holds(second, 300, 300);
	holds(c, 1, 12);
	CHECK(DELETE(second, 300));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, DELETE(second, 300));
	CLAIM(ended == 0);
	CHECK(cuCtxDestroy(second));
	CLAIM(ended == 299 && ended_of == second && ended_values == 299 * 300 / 2);
	void *value;
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, GET(&value, second, 1));
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, keep_own, NUMBER(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	holds(c, 1, 12);
	ended = 0;
}

/* --- modules and the primary context --- */

static CUcontext primary_context(void)
{
	CUcontext c = NULL, same, current;
	unsigned flags;
	int active;
	CHECK(SLOT(INTERFACE, 2, CUresult, CUcontext *, CUdevice)(&c, 0));
	CHECK(cuCtxGetCurrent(&current));
	CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CLAIM(c && !current && !active);
	CHECK(cuDevicePrimaryCtxRetain(&same, 0));
	CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CLAIM(same == c && active);
	return c;
}

typedef CUresult (*with_more)(const void *, const void *, void *, void *, unsigned);

/* Through each of the slots that load; the last module stays. */
static CUmodule load_module(const void *wrapper, const void *fat)
{
	CUmodule m = NULL;
	with_more six = (with_more)tables_of[INTERFACE][6], eight = (with_more)tables_of[INTERFACE][8];
	CHECK(SLOT(INTERFACE, 1, CUresult, CUmodule *, const void *)(&m, wrapper));
	CHECK(cuModuleUnload(m));
	CHECK(eight(fat, &m, NULL, NULL, 0));
	CHECK(cuModuleUnload(m));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, six(&m, wrapper, &m, NULL, 0));
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, eight(fat, &m, NULL, NULL, 1));
	CHECK(six(&m, wrapper, NULL, NULL, 0));
	SLOT(INTERFACE, 7, void, size_t)(0);
	CHECK(SLOT(INTERFACE, 12, CUresult, void)());
	return m;
}
