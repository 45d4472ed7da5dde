/* The library's own parts: address ranges, handles, image lengths, layouts. */
#include <elf.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "core/handle.h"
#include "image/image.h"
#include "image/layout.h"
#include "core/range.h"

static void ranges(void)
{
	enum { N = 2000 };
	struct range r;
	uint32_t seed = 1;
	static uint8_t in[N];
	for (int round = 0; round < 20000; round++) {
		seed = seed * 1664525u + 1013904223u;
		uint32_t i = (seed >> 8) % N;
		struct range one = {.base = 0x1000 * (uint64_t)(i + 1), .size = 0x800, .kind = RANGE_DEVICE, .context = i % 3 + 1};
		if (in[i])
			CLAIM(!range_add(&one) && range_remove(one.base, RANGE_DEVICE, &r) && r.base == one.base);
		else
			CLAIM(!range_remove(one.base, RANGE_DEVICE, &r) && range_add(&one));
		in[i] = !in[i];
	}
	int have = 0;
	for (uint32_t i = 0; i < N; i++) {
		uint64_t base = 0x1000 * (uint64_t)(i + 1);
		have += in[i];
		CLAIM(range_find(base + 0x7ff, &r) == in[i] && !range_find(base + 0x800, &r) && !range_find(base - 1, &r));
	}
	struct range across = {.base = 0, .size = 0x1000 * N * 2, .kind = RANGE_DEVICE}, wrap = {.base = UINT64_MAX - 5, .size = 100};
	CLAIM(!range_add(&across) && !range_add(&wrap));
	for (uint64_t c = 1; c <= 3; c++)
		while (range_remove_context(c, false, &r))
			have--;
	CLAIM(have == 0);
}

/* Memory that the host allocates is new, whatever the table contains; but memory of the program's own stays. */
static void fresh_ranges(void)
{
	struct range r, old = {.base = 0x10000, .size = 0x200, .kind = RANGE_GLOBAL, .context = 1, .owner = 7};
	struct range more = {.base = 0x10400, .size = 0x200, .kind = RANGE_DEVICE, .context = 1};
	struct range fresh = {.base = 0x10100, .size = 0x400, .kind = RANGE_DEVICE, .context = 2};
	CLAIM(range_add(&old) && range_add(&more) && !range_add(&fresh));
	CLAIM(range_add_fresh(&fresh) && range_find(0x10100, &r) && r.context == 2);
	CLAIM(!range_find(0x10000, &r) && !range_find(0x10500, &r));
	range_remove_owner(7);
	CLAIM(range_remove(fresh.base, RANGE_DEVICE, &r) && !range_find(0x10100, &r));
	struct range mine = {.base = 0x10000, .size = 0x1000, .kind = RANGE_REGISTERED};
	CLAIM(range_add(&mine) && !range_add_fresh(&fresh) && range_remove(mine.base, RANGE_REGISTERED, &r));
}

struct thing {
	struct object object;
	int value;
};
static struct table things = HANDLE_TABLE(HANDLE_EVENT, struct thing, 1000);

static void handles(void)
{
	uint64_t id[1000];
	for (int i = 0; i < 1000; i++) {
		struct thing *t = handle_new(&things);
		CLAIM(t);
		CLAIM(!handle_find(&things, t->object.id)); /* not published yet */
		id[i] = t->object.id;
		t->value = i;
		handle_publish(t);
	}
	CLAIM(!handle_new(&things));
	for (int i = 0; i < 1000; i++) {
		struct thing *t = handle_find(&things, id[i]);
		CLAIM(t && t->value == i && id[i] >= 16 && (uint32_t)id[i] != 0);
		CLAIM(!handle_find(&things, id[i] + (1ull << 20)) && !handle_find(&things, id[i] ^ 1ull << 63));
	}
	uint64_t absurd[] = {0, 1, 2, 16, UINT64_MAX, INT64_MAX, 0xdeadbeef, (uint64_t)(uintptr_t)&things, id[0] & 0xfffff,
		(uint64_t)HANDLE_EVENT << 40, (uint64_t)HANDLE_EVENT << 40 | 0xfffff};
	for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++)
		CLAIM(!handle_find(&things, absurd[i]));
	struct thing *t = handle_find(&things, id[7]);
	CLAIM(handle_retire(t) && !handle_retire(t) && !handle_find(&things, id[7]));
	handle_free(&things, t);
	CLAIM((t = handle_new(&things)) && t->object.id != id[7]);
	handle_publish(t);
	CLAIM(!handle_find(&things, id[7]) && handle_find(&things, t->object.id) == t);
}

/* Bytes that end at a page boundary, so that reads beyond them fault. */
static uint8_t *edge(const void *bytes, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (n + page - 1) / page * page;
	uint8_t *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(p != MAP_FAILED && mprotect(p + room, page, PROT_NONE) == 0);
	return memcpy(p + room - n, bytes, n);
}

struct fat_entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t payload;
	uint32_t compressed, unknown;
	uint16_t minor, major;
	uint32_t sm, name, nameBytes;
	uint64_t flags, zero, plain;
};

struct fat {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes;
	struct {
		struct fat_entry e;
		char text[16];
	} entry[4];
};

static struct fat fat_of_four(void)
{
	static const uint32_t sm[] = {52, 75, 90, 70};
	struct fat f = {.magic = 0xba55ed50, .version = 1, .header = 16, .bytes = sizeof f.entry};
	for (int i = 0; i < 4; i++) {
		f.entry[i].e = (struct fat_entry){.kind = i == 3 ? 2 : 1, .version = 0x101, .header = 64, .payload = 16, .sm = sm[i]};
		snprintf(f.entry[i].text, sizeof f.entry[i].text, "PTX for %u", sm[i]);
	}
	return f;
}

static void images(void)
{
	struct image image;
	OK(image_choose(edge("hello", 6), 75, false, &image));
	CLAIM(image.length == 6);
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(edge("", 1), 75, false, &image));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(edge("ab", 3), 75, false, &image));
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(edge("\x01\x02\x03\x04", 4), 75, false, &image));

	struct fat f = fat_of_four();
	OK(image_choose(edge(&f, sizeof f), 75, false, &image));
	CLAIM(strcmp(image.bytes, "PTX for 75") == 0 && image.length == 16);
	OK(image_choose(&f, 100, false, &image));
	CLAIM(strcmp(image.bytes, "PTX for 90") == 0);
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, image_choose(&f, 50, false, &image));
	struct { uint32_t magic, version; const void *fat; void *none; } wrapper = {0x466243b1, 1, &f, NULL};
	OK(image_choose(edge(&wrapper, sizeof wrapper), 60, false, &image));
	CLAIM(strcmp(image.bytes, "PTX for 52") == 0);

	/* Machine code, where the device accepts it, and for the same major version: else text. */
	OK(image_choose(&f, 70, true, &image));
	CLAIM(strcmp(image.bytes, "PTX for 70") == 0);
	OK(image_choose(&f, 72, true, &image));
	CLAIM(strcmp(image.bytes, "PTX for 70") == 0);
	OK(image_choose(&f, 72, false, &image));
	CLAIM(strcmp(image.bytes, "PTX for 52") == 0);
	OK(image_choose(&f, 80, true, &image));
	CLAIM(strcmp(image.bytes, "PTX for 75") == 0);
	f.entry[3].e.flags = 0x100000; /* for 70 only */
	OK(image_choose(&f, 72, true, &image));
	CLAIM(strcmp(image.bytes, "PTX for 52") == 0);
	OK(image_choose(&f, 70, true, &image));
	CLAIM(strcmp(image.bytes, "PTX for 70") == 0);
	f.entry[2].e.flags = 0x100000;
	OK(image_choose(&f, 100, true, &image));
	CLAIM(strcmp(image.bytes, "PTX for 75") == 0);

	/* The error lists the contents of the fat binary. */
	struct fat none = fat_of_four();
	none.entry[0].e.kind = 2;
	none.entry[1].e.kind = 8;
	none.entry[3].e.flags = 0x100000;
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, image_choose(&none, 75, false, &image));
	CLAIM(strcmp(image_refusal(), "the image has machine code for sm_52, LTO-IR for sm_75, PTX for sm_90, machine code for sm_70a; "
		"no PTX for this device, sm_75: compile with -gencode arch=compute_75,code=compute_75") == 0);

	/* LZ4: four literals, then a match of 12 that overlaps itself. */
	static const uint8_t packed[] = {0x48, 'a', 'b', 'c', 'd', 4, 0, 0x10, 0};
	f.entry[1].e.flags = 0x2000;
	f.entry[1].e.compressed = sizeof packed;
	f.entry[1].e.plain = 17;
	memcpy(f.entry[1].text, packed, sizeof packed);
	OK(image_choose(&f, 75, false, &image));
	CLAIM(image.length == 17 && memcmp(image.bytes, "abcdabcdabcdabcd", 17) == 0);
	image_drop(&image);
	f.entry[1].e.plain = 16;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(&f, 75, false, &image));
	f.entry[1].e.compressed = 17;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(&f, 75, false, &image));
	f.entry[1].e.flags = 0x1000;
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, image_choose(&f, 75, false, &image));
	f.entry[1].e.flags = 0xa000; /* both? */
	EXPECT(CUDA_ERROR_NOT_SUPPORTED, image_choose(&f, 75, false, &image));

	/* Zstandard: one block that repeats a byte. */
	static const uint8_t repeated[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 17, 17 << 3 | 3, 0, 0, 'x'};
	f.entry[1].e.flags = 0x8000;
	f.entry[1].e.compressed = sizeof repeated;
	f.entry[1].e.plain = 17;
	memcpy(f.entry[1].text, repeated, sizeof repeated);
	OK(image_choose(&f, 75, false, &image));
	CLAIM(image.length == 17 && memcmp(image.bytes, "xxxxxxxxxxxxxxxxx", 17) == 0);
	image_drop(&image);
	f.entry[1].e.plain = 18;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(&f, 75, false, &image));
	f.entry[0].e.payload = 1 << 30;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(&f, 75, false, &image));

	struct { Elf64_Ehdr h; Elf64_Shdr s[2]; char tail[10]; } elf = {.h = {.e_ident = ELFMAG "\2", .e_machine = 190, .e_shnum = 2,
		.e_shentsize = sizeof(Elf64_Shdr), .e_shoff = sizeof(Elf64_Ehdr)}};
	elf.s[0] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_offset = offsetof(__typeof__(elf), tail), .sh_size = 10};
	elf.s[1] = (Elf64_Shdr){.sh_type = SHT_NOBITS, .sh_offset = 5000, .sh_size = 1 << 20};
	size_t whole = offsetof(__typeof__(elf), tail) + 10;
	OK(image_choose(edge(&elf, whole), 75, false, &image));
	CLAIM(image.length == whole);
	elf.h.e_machine = EM_X86_64; /* a program or a library of the host */
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(&elf, 75, false, &image));
	elf.h.e_machine = 190;

	/* With a given length: a part of an image is none, and nothing behind it is read. */
	f = fat_of_four();
	for (size_t n = 1; n < whole; n++)
		EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose_within(edge(&elf, n), n, 75, false, &image));
	OK(image_choose_within(edge(&elf, whole), whole, 75, false, &image));
	for (size_t n = 1; n < sizeof f; n++)
		EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose_within(edge(&f, n), n, 75, false, &image));
	OK(image_choose_within(edge(&f, sizeof f), sizeof f, 75, false, &image));
	for (size_t n = 1; n < sizeof wrapper; n++)
		EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose_within(edge(&wrapper, n), n, 75, false, &image));
	OK(image_choose_within(edge("hello", 5), 5, 75, false, &image));
	CLAIM(image.length == 5);
	OK(image_choose_within(edge("hello", 6), 6, 75, false, &image));
	CLAIM(image.length == 6);
	for (size_t n = 1; n < 4; n++)
		EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose_within(edge("hello", n), n, 75, false, &image));
	struct linked_header linked = {.magic = LINKED_MAGIC, .bytes = sizeof linked};
	for (size_t n = 4; n < sizeof linked; n++)
		EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose_within(edge(&linked, n), n, 75, false, &image));
	linked.bytes++;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose_within(edge(&linked, sizeof linked), sizeof linked, 75, false, &image));

	elf.s[0].sh_size = UINT64_MAX;
	EXPECT(CUDA_ERROR_INVALID_IMAGE, image_choose(&elf, 75, false, &image));
}

/* A layout of one function with one parameter, and one variable. */
struct wire {
	uint32_t head[4];
	struct layout_function f;
	uint32_t params[2];
	struct layout_param p;
	struct layout_global g;
	char names[4]; /* three and a pad */
	struct layout_limits limits;
};

static void layouts(void)
{
	struct wire good = {
		.head = {1, 1, 1, 3}, .f = {.name = 0, .paramBytes = 8, .paramCount = 1}, .params = {1, 0}, .p = {0, 8},
		.g = {.name = 1, .address = 5, .size = 4}, .names = "f\0", .limits = {5, {6, 7, 8}},
	};
	struct layout l;
	size_t old = offsetof(struct wire, names) + 3, n = offsetof(struct wire, limits) + sizeof good.limits;
	CLAIM(layout_parse((uint8_t *)&good, n, &l));
	CLAIM(layout_find_function(&l, "f") == 0 && layout_find_function(&l, "g") == -1 && layout_find_global(&l, LAYOUT_MEMORY, "") == 0);
	CLAIM(l.limits && l.limits[0].refusal == 5 && l.limits[0].required[2] == 8);
	layout_free(&l);
	for (size_t cut = 0; cut < n; cut++) {
		bool older = cut == old || cut == old + 1; /* from a host without limits */
		CLAIM(layout_parse((uint8_t *)&good, cut, &l) == older);
		if (older) {
			CLAIM(!l.limits);
			layout_free(&l);
		}
	}
	/* Every 32-bit word replaced by absurd values: rejected, or harmless. */
	for (size_t at = 0; at + 4 <= n; at += 4) {
		struct wire bad = good;
		uint32_t absurd = 0xfffffff0;
		memcpy((uint8_t *)&bad + at, &absurd, 4);
		if (layout_parse((uint8_t *)&bad, n, &l)) {
			layout_find_function(&l, "f");
			layout_find_global(&l, LAYOUT_MEMORY, "");
			layout_free(&l);
		}
	}
}

int main(void)
{
	ranges();
	fresh_ranges();
	handles();
	images();
	layouts();
	puts("units: fine");
	return 0;
}
