/*
 * The API passes images without a length, which is determined from the format. The program's memory is trusted to be
 * well-formed; the host validates its copy again.
 */
#include "image/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/process.h"
#include "image/zstd.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u

struct wrapper {
	uint32_t magic, version;
	const void *fatbin, *extra;
};
enum { WRAPPER_PRELINKED = 2 }; /* version with an extra field that is a list of fat binaries */

struct fatbin {
	uint32_t magic;
	uint16_t version, headerBytes;
	uint64_t bytes; /* of all entries */
};

struct entry {
	uint16_t kind, version;
	uint32_t headerBytes;
	uint64_t payloadBytes;
	uint32_t compressedBytes, unknown;
	uint16_t minor, major;
	uint32_t capability;
	uint32_t nameOffset, nameBytes;
	uint64_t flags, zero, plainBytes;
};
_Static_assert(sizeof(struct entry) == 64, "fat binary entry");

enum { KIND_PTX = 1, KIND_CUBIN = 2, KIND_LTO = 8 };
enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000, FLAG_OLD_COMPRESSION = 0x1000, FLAG_THIS_ONLY = 0x100000 };

/* Criteria for the entries of a fat binary, and the bytes of the image that may be read. */
struct target {
	int capability;
	bool code;     /* accepts machine code, too */
	uint64_t most; /* UINT64_MAX: unknown; the image is the program's memory */
};

#define EM_CUDA 190

/* Describes why this thread's last fat binary was rejected. */
static _Thread_local char refusal[256];

const char *image_refusal(void) { return *refusal ? refusal : "the image has no PTX for this device"; }

/* Decompresses one raw LZ4 block of exactly outBytes; false if it is malformed or of another size. */
static bool lz4_expand(const uint8_t *in, uint64_t inBytes, uint8_t *out, uint64_t outBytes)
{
	uint64_t i = 0, o = 0;
	while (i < inBytes) {
		uint8_t token = in[i++], more;
		uint64_t literals = token >> 4;
		if (literals == 15)
			do {
				if (i == inBytes)
					return false;
				literals += more = in[i++];
			} while (more == 255);
		if (literals > inBytes - i || literals > outBytes - o)
			return false;
		memcpy(out + o, in + i, literals);
		i += literals;
		o += literals;
		if (i == inBytes)
			break; /* the last sequence has no match */
		if (inBytes - i < 2)
			return false;
		uint64_t distance = in[i] | (uint64_t)in[i + 1] << 8, length = (token & 15) + 4;
		i += 2;
		if ((token & 15) == 15)
			do {
				if (i == inBytes)
					return false;
				length += more = in[i++];
			} while (more == 255);
		if (distance == 0 || distance > o || length > outBytes - o)
			return false;
		for (; length > 0; length--, o++)
			out[o] = out[o - distance];
	}
	return o == outBytes;
}

static CUresult take(const struct entry *e, const uint8_t *payload, struct image *image)
{
	*image = (struct image){.bytes = payload, .length = e->payloadBytes};
	if (e->compressedBytes == 0)
		return CUDA_SUCCESS;
	bool zstd = e->flags & FLAG_ZSTD, lz4 = e->flags & FLAG_LZ4;
	if ((e->flags & FLAG_OLD_COMPRESSION) || zstd == lz4) {
		log_at(LOG_ERROR, "an image compressed in a way that is not supported (flags 0x%llx)", (unsigned long long)e->flags);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (e->compressedBytes > e->payloadBytes || e->plainBytes == 0 || e->plainBytes > IMAGE_MOST)
		return CUDA_ERROR_INVALID_IMAGE;
	uint8_t *plain = malloc(e->plainBytes);
	if (!plain)
		return CUDA_ERROR_OUT_OF_MEMORY;
	bool good = zstd ? zstd_expand(payload, e->compressedBytes, plain, e->plainBytes)
		: lz4_expand(payload, e->compressedBytes, plain, e->plainBytes);
	if (!good) {
		free(plain);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*image = (struct image){.bytes = plain, .length = e->plainBytes, .owned = plain};
	return CUDA_SUCCESS;
}

/* Devices run text made for any device before them, and machine code made for one of the same major version. */
static bool suits(const struct entry *e, struct target t)
{
	int made = e->capability < 10000 ? (int)e->capability : INT_MAX;
	if (made > t.capability || ((e->flags & FLAG_THIS_ONLY) && made != t.capability))
		return false;
	return e->kind == KIND_PTX || (e->kind == KIND_CUBIN && t.code && made / 10 == t.capability / 10);
}

static bool is_better(const struct entry *e, const struct entry *than)
{
	return e->kind == than->kind ? e->capability > than->capability : e->kind == KIND_CUBIN;
}

/* Appends to the description, as far as there is room. */
static void say(const char *format, ...)
{
	size_t have = strlen(refusal);
	va_list args;
	va_start(args, format);
	vsnprintf(refusal + have, sizeof refusal - have, format, args);
	va_end(args);
}

void image_refuse(const char *why)
{
	*refusal = 0;
	say("%s", why);
}

static void say_entry(const struct entry *e)
{
	const char *kind = e->kind == KIND_PTX ? "PTX" : e->kind == KIND_CUBIN ? "machine code" : e->kind == KIND_LTO ? "LTO-IR" : "something";
	if (strlen(refusal) < sizeof refusal / 2)
		say("%s%s for sm_%u%s", *refusal ? ", " : "the image has ", kind, e->capability, e->flags & FLAG_THIS_ONLY ? "a" : "");
}

static CUresult choose(const uint8_t *start, struct target target, struct image *image)
{
	struct fatbin f;
	*refusal = 0;
	if (target.most < sizeof f)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&f, start, sizeof f);
	if (f.magic != FATBIN_MAGIC || f.headerBytes < sizeof f || f.bytes > IMAGE_MOST || f.headerBytes + f.bytes > target.most)
		return CUDA_ERROR_INVALID_IMAGE;
	const uint8_t *at = start + f.headerBytes;
	uint64_t left = f.bytes;
	struct entry best = {0}, e;
	const uint8_t *payload = NULL;
	while (left >= sizeof e) {
		memcpy(&e, at, sizeof e);
		if (e.headerBytes < sizeof e || e.headerBytes > left || e.payloadBytes > left - e.headerBytes)
			return CUDA_ERROR_INVALID_IMAGE;
		say_entry(&e);
		if (suits(&e, target) && (!payload || is_better(&e, &best))) {
			best = e;
			payload = at + e.headerBytes;
		}
		at += e.headerBytes + e.payloadBytes;
		left -= e.headerBytes + e.payloadBytes;
	}
	if (payload)
		return take(&best, payload, image);
	say("%s; no PTX for this device, sm_%d: compile with -gencode arch=compute_%d,code=compute_%d",
		*refusal ? "" : "the image has nothing in it", target.capability, target.capability, target.capability);
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* Appends an object to a linked image and extends it. */
static CUresult append(struct image *linked, const struct image *text)
{
	struct linked_header h = {.magic = LINKED_MAGIC, .bytes = sizeof h, .purpose = LINKED_TO_LOAD};
	struct linked_object o = {.textBytes = strnlen(text->bytes, text->length)};
	if (linked->owned)
		memcpy(&h, linked->owned, sizeof h);
	uint8_t *more = h.bytes + sizeof o + o.textBytes <= IMAGE_MOST ? realloc(linked->owned, h.bytes + sizeof o + o.textBytes) : NULL;
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(more + h.bytes, &o, sizeof o);
	memcpy(more + h.bytes + sizeof o, text->bytes, o.textBytes);
	h.bytes += sizeof o + o.textBytes;
	h.objects++;
	memcpy(more, &h, sizeof h);
	*linked = (struct image){.bytes = more, .length = h.bytes, .owned = more};
	return CUDA_SUCCESS;
}

/*
 * A program that was linked from several files contains the linked result, which may be machine code only, and the fat
 * binaries of its inputs, for devices that have to link them again. The list of inputs ends in NULL.
 */
static CUresult link_prelinked(const void *const *list, struct target target, struct image *image)
{
	struct image one, linked = {0};
	CUresult r = list && *list ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
	for (; r == CUDA_SUCCESS && *list; list++) {
		r = choose(*list, target, &one);
		if (r == CUDA_SUCCESS) {
			r = append(&linked, &one);
			image_drop(&one);
		}
	}
	*image = linked;
	if (r != CUDA_SUCCESS)
		image_drop(image);
	return r;
}

static CUresult open_wrapper(const uint8_t *p, struct target target, struct image *image)
{
	struct wrapper w;
	if (target.most < sizeof w)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&w, p, sizeof w);
	if (!w.fatbin)
		return CUDA_ERROR_INVALID_IMAGE;
	target.most = UINT64_MAX; /* it points to memory of the program */
	CUresult r = choose(w.fatbin, target, image);
	target.code = false; /* only text can be linked again */
	return r == CUDA_ERROR_NO_BINARY_FOR_GPU && w.version == WRAPPER_PRELINKED && w.extra ? link_prelinked(w.extra, target, image) : r;
}

static void stretch(uint64_t *length, uint64_t offset, uint64_t bytes)
{
	uint64_t end;
	if (__builtin_add_overflow(offset, bytes, &end))
		end = UINT64_MAX;
	if (end > *length)
		*length = end;
}

/* Files for other processors are no images. */
static CUresult measure_elf(const uint8_t *p, uint64_t most, struct image *image)
{
	Elf64_Ehdr h;
	if (most < sizeof h)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&h, p, sizeof h);
	if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_machine != EM_CUDA || (h.e_phnum && h.e_phentsize != sizeof(Elf64_Phdr)) ||
		(h.e_shnum && h.e_shentsize != sizeof(Elf64_Shdr)) || h.e_phoff > IMAGE_MOST || h.e_shoff > IMAGE_MOST)
		return CUDA_ERROR_INVALID_IMAGE;
	uint64_t length = sizeof h;
	stretch(&length, h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr));
	stretch(&length, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr));
	if (length > most)
		return CUDA_ERROR_INVALID_IMAGE;
	for (uint32_t i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr ph;
		memcpy(&ph, p + h.e_phoff + i * sizeof ph, sizeof ph);
		stretch(&length, ph.p_offset, ph.p_filesz);
	}
	for (uint32_t i = 0; i < h.e_shnum; i++) {
		Elf64_Shdr sh;
		memcpy(&sh, p + h.e_shoff + i * sizeof sh, sizeof sh);
		if (sh.sh_type != SHT_NOBITS)
			stretch(&length, sh.sh_offset, sh.sh_size);
	}
	*image = (struct image){.bytes = p, .length = length};
	return length <= IMAGE_MOST && length <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static bool printable(uint8_t c) { return (c >= ' ' && c < 127) || (c >= '\t' && c <= '\r'); }

/*
 * Text ends with its NUL, which is part of it, or with the readable bytes. Only the first bytes decide, and nothing after
 * a NUL is read.
 */
static CUresult measure_text(const uint8_t *p, uint64_t most, struct image *image)
{
	bool comment = p[0] == '/' && (p[1] == '/' || p[1] == '*'); /* of any bytes */
	for (int i = 0; i < 4 && !comment; i++)
		if (!printable(p[i]))
			return CUDA_ERROR_INVALID_IMAGE;
	uint64_t n = most == UINT64_MAX ? strlen((const char *)p) : strnlen((const char *)p, most);
	*image = (struct image){.bytes = p, .length = n < most ? n + 1 : n};
	return image->length <= IMAGE_MOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult measure_linked(const uint8_t *p, uint64_t most, struct image *image)
{
	struct linked_header h;
	if (most < sizeof h)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&h, p, sizeof h);
	*image = (struct image){.bytes = p, .length = h.bytes};
	bool fits = h.bytes >= sizeof h && h.bytes <= IMAGE_MOST && h.bytes <= most;
	return fits && image_is_linked(image) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

bool image_is_linked(const struct image *image)
{
	return image->length >= sizeof(struct linked_header) && memcmp(image->bytes, LINKED_MAGIC, LINKED_MAGIC_BYTES) == 0;
}

bool image_is_elf(const struct image *image)
{
	return image->length >= SELFMAG && memcmp(image->bytes, ELFMAG, SELFMAG) == 0;
}

static CUresult choose_any(const uint8_t *p, struct target target, struct image *image)
{
	*refusal = 0;
	uint32_t magic = 0;
	if (target.most < sizeof magic)
		return CUDA_ERROR_INVALID_IMAGE;
	for (int i = 0; i < 4; i++) { /* a short text may end at a page boundary */
		magic |= (uint32_t)p[i] << (8 * i);
		if (p[i] == 0 && i < 3)
			return CUDA_ERROR_INVALID_IMAGE;
	}
	if (magic == WRAPPER_MAGIC || magic == FATBIN_MAGIC) {
		CUresult r = magic == WRAPPER_MAGIC ? open_wrapper(p, target, image) : choose(p, target, image);
		image->fat = r == CUDA_SUCCESS;
		return r;
	}
	if (memcmp(p, ELFMAG, SELFMAG) == 0)
		return measure_elf(p, target.most, image);
	if (memcmp(p, LINKED_MAGIC, 4) == 0)
		return measure_linked(p, target.most, image);
	return measure_text(p, target.most, image);
}

CUresult image_choose(const void *pointer, int capability, bool code, struct image *image)
{
	return choose_any(pointer, (struct target){capability, code, UINT64_MAX}, image);
}

CUresult image_choose_within(const void *bytes, uint64_t length, int capability, bool code, struct image *image)
{
	return choose_any(bytes, (struct target){capability, code, length}, image);
}

CUresult image_choose_file(const struct image_file *file, int capability, bool code, struct image *image)
{
	return image_choose_within(file->bytes, file->length + 1, capability, code, image);
}

CUresult image_keep(struct image *image)
{
	void *copy = image->owned ? image->owned : malloc(image->length);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!image->owned)
		memcpy(copy, image->bytes, image->length);
	image->bytes = image->owned = copy;
	return CUDA_SUCCESS;
}

void image_drop(struct image *image)
{
	free(image->owned);
	image->owned = NULL;
}

CUresult image_read_file(const char *name, struct image_file *file)
{
	*file = (struct image_file){0};
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_FILE_NOT_FOUND;
	struct stat s;
	CUresult r = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size < INT32_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
	size_t size = r == CUDA_SUCCESS ? (size_t)s.st_size : 0;
	file->bytes = calloc(size + sizeof(uint64_t), 1);
	while (file->bytes && file->length < size) {
		ssize_t n = read(fd, file->bytes + file->length, size - file->length);
		if (n <= 0 && !(n < 0 && errno == EINTR))
			break;
		file->length += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (r == CUDA_SUCCESS && !file->bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint32_t magic = 0;
	if (r == CUDA_SUCCESS)
		memcpy(&magic, file->bytes, sizeof magic);
	return magic == WRAPPER_MAGIC ? CUDA_ERROR_INVALID_IMAGE : r; /* a wrapper's pointers are those of another process */
}
