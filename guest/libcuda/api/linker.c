/*
 * The linker collects objects of PTX text. The host checks each one as it is added and all of them together at the end,
 * so that errors occur where programs expect them. The finished "cubin" is an image in a private format that contains
 * the objects; loading it links and loads them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/futex.h"
#include "core/zz_impl.h"
#include "image/image.h"
#include "image/jit.h"
#include "image/module.h"
#include "object/context.h"

/* The collected inputs. The program's option arrays stay valid until the link state is destroyed. */
struct link {
	struct object object;
	uint64_t context; /* handle */
	int device;
	struct jit jit;
	bool complete;
	CUresult result; /* result of the completion */
	uint8_t *image; /* begins with a linked_header */
	uint64_t bytes, room;
};

static struct table links = HANDLE_TABLE(HANDLE_LINK, struct link, 60000);
static pthread_mutex_t linkLock = PTHREAD_MUTEX_INITIALIZER; /* guards the inputs of all link states */

static struct link *link_find(CUlinkState state) { return handle_find(&links, (uint64_t)(uintptr_t)state); }

/* A validated input, as one or more objects of a linked image. */
struct input {
	const uint8_t *objects; /* NULL: one object, text with this name */
	const void *text;
	const char *name;
	uint64_t bytes; /* of the objects, or the text */
	uint32_t count;
};

static uint64_t input_bytes(const struct input *in)
{
	return in->objects ? in->bytes : sizeof(struct linked_object) + strlen(in->name) + in->bytes;
}

/* Appends an input to a linked image that has room for it. */
static void put(uint8_t *image, uint64_t *bytes, const struct input *in)
{
	uint8_t *at = image + *bytes;
	if (in->objects) {
		memcpy(at, in->objects, in->bytes);
	} else {
		struct linked_object o = {.nameBytes = strlen(in->name), .textBytes = in->bytes};
		memcpy(at, &o, sizeof o);
		memcpy(at + sizeof o, in->name, o.nameBytes);
		memcpy(at + sizeof o + o.nameBytes, in->text, o.textBytes);
	}
	*bytes += input_bytes(in);
	struct linked_header h;
	memcpy(&h, image, sizeof h);
	h.bytes = *bytes;
	h.objects += in->count;
	memcpy(image, &h, sizeof h);
}

static void begin(uint8_t *image, uint64_t *bytes, uint32_t purpose)
{
	struct linked_header h = {.magic = LINKED_MAGIC, .bytes = sizeof h, .purpose = purpose};
	memcpy(image, &h, sizeof h);
	*bytes = sizeof h;
}

/* Makes the host check an image, and adds the time used. */
static CUresult check(struct link *l, void *image, uint64_t bytes, struct jit *jit)
{
	struct context *c;
	CUresult r = context_of((CUcontext)(uintptr_t)l->context, &c);
	if (r != CUDA_SUCCESS)
		return r;
	int64_t began = clock_ns(CLOCK_MONOTONIC);
	struct image linked = {.bytes = image, .length = bytes};
	r = module_check(c, &linked, jit);
	l->jit.before += (float)(clock_ns(CLOCK_MONOTONIC) - began) / 1e6f;
	return r;
}

/* Makes room for more bytes; requires the lock. */
static CUresult reserve(struct link *l, uint64_t more)
{
	if (l->bytes + more > IMAGE_MOST)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (l->bytes + more <= l->room)
		return CUDA_SUCCESS;
	uint64_t room = 2 * (l->bytes + more);
	uint8_t *image = realloc(l->image, room);
	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->image = image;
	l->room = room;
	return CUDA_SUCCESS;
}

static CUresult append(struct link *l, const struct input *in)
{
	pthread_mutex_lock(&linkLock);
	CUresult r = l->complete ? CUDA_ERROR_INVALID_VALUE : reserve(l, input_bytes(in));
	if (r == CUDA_SUCCESS)
		put(l->image, &l->bytes, in);
	pthread_mutex_unlock(&linkLock);
	return r;
}

/*
 * A link state outlives its context: its inputs are then collected unchecked, as NVIDIA's driver (580, on an H200)
 * does.
 */
static bool has_context(const struct link *l) { return handle_find(&contexts, l->context); }

static CUresult check_and_append(struct link *l, const struct input *in, struct jit *jit)
{
	uint64_t bytes;
	uint8_t *image = input_bytes(in) <= IMAGE_MOST ? malloc(sizeof(struct linked_header) + input_bytes(in)) : NULL;
	if (!image)
		return module_refuse(jit, CUDA_ERROR_OUT_OF_MEMORY);
	begin(image, &bytes, LINKED_TO_COMPILE);
	put(image, &bytes, in);
	CUresult r = has_context(l) ? check(l, image, bytes, jit) : CUDA_SUCCESS;
	free(image);
	return r == CUDA_SUCCESS ? append(l, in) : r;
}

/*
 * Reports whether data is of a format that NVIDIA's linker accepts: an object, an archive of objects, a fat binary or
 * LLVM bitcode.
 */
static bool is_known(const void *data, size_t size)
{
	static const uint8_t known[][4] = {
		{0x7f, 'E', 'L', 'F'}, {'!', '<', 'a', 'r'}, {0x50, 0xed, 0x55, 0xba}, {0xb1, 0x43, 0x62, 0x46}, {'B', 'C', 0xc0, 0xde},
	};
	for (size_t i = 0; size >= sizeof *known && i < sizeof known / sizeof *known; i++)
		if (memcmp(data, known[i], sizeof *known) == 0)
			return true;
	return false;
}

/* Finds the PTX in an input of a type other than text. */
static CUresult open_input(struct link *l, CUjitInputType type, const void *data, size_t size, struct image *image)
{
	struct context *c;
	CUresult r = has_context(l) ? context_of((CUcontext)(uintptr_t)l->context, &c) : CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	if (type != CU_JIT_INPUT_FATBINARY && type != CU_JIT_INPUT_CUBIN) {
		image_refuse("an input of this type has no PTX, which the linker needs");
		return is_known(data, size) ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
	}
	r = image_choose_within(data, size, device_capability(l->device), false, image);
	if (r == CUDA_SUCCESS && image_is_elf(image)) {
		image_drop(image);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	return r;
}

static CUresult add(struct link *l, CUjitInputType type, const void *data, size_t size, const char *name, struct jit *jit)
{
	struct image image = {.bytes = data, .length = size};
	CUresult r = type == CU_JIT_INPUT_PTX ? CUDA_SUCCESS : open_input(l, type, data, size, &image);
	if (r != CUDA_SUCCESS)
		return module_refuse(jit, r);
	struct input in = {.text = image.bytes, .name = name, .bytes = image.length, .count = 1};
	if (image_is_linked(&image)) {
		struct linked_header h;
		memcpy(&h, image.bytes, sizeof h);
		in = (struct input){.objects = (const uint8_t *)image.bytes + sizeof h, .bytes = image.length - sizeof h, .count = h.objects};
	} else {
		in.bytes = strnlen(image.bytes, image.length);
	}
	r = check_and_append(l, &in, jit);
	image_drop(&image);
	return r;
}

/* Returns the options of one input, else those of the link state. */
static CUresult choose_jit(struct link *l, unsigned int count, CUjit_option *options, void **values, struct jit *jit)
{
	*jit = l->jit;
	return count == 0 ? CUDA_SUCCESS : jit_read(count, options, values, jit);
}

CUresult pg_cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
	struct context *c;
	struct jit jit;
	CUresult r = context_current(&c);
	if (r == CUDA_SUCCESS)
		r = state ? jit_read(count, options, values, &jit) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	uint8_t *image = malloc(4096);
	struct link *l = image ? handle_new(&links) : NULL;
	if (!l) {
		free(image);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	l->context = c->object.id;
	l->device = c->device;
	l->jit = jit;
	l->complete = false;
	l->image = image;
	l->room = 4096;
	begin(l->image, &l->bytes, LINKED_TO_LOAD);
	jit_report(&jit, "", 0, CUDA_SUCCESS, 0);
	handle_publish(l);
	*state = HANDLE_OF(CUlinkState, l);
	return CUDA_SUCCESS;
}

CUresult pg_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
	unsigned int count, CUjit_option *options, void **values)
{
	struct link *l = link_find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data || size == 0 || (unsigned)type >= CU_JIT_NUM_INPUT_TYPES)
		return CUDA_ERROR_INVALID_VALUE;
	struct jit jit;
	CUresult r = choose_jit(l, count, options, values, &jit);
	return r == CUDA_SUCCESS ? add(l, type, data, size, name ? name : "", &jit) : r;
}

CUresult pg_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
	CUjit_option *options, void **values)
{
	struct link *l = link_find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!path || (unsigned)type >= CU_JIT_NUM_INPUT_TYPES)
		return CUDA_ERROR_INVALID_VALUE;
	struct jit jit;
	CUresult r = choose_jit(l, count, options, values, &jit);
	struct image_file file = {0};
	if (r == CUDA_SUCCESS)
		r = image_read_file(path, &file);
	if (r == CUDA_SUCCESS)
		r = add(l, type, file.bytes, file.length, path, &jit);
	free(file.bytes);
	return r;
}

/*
 * The image belongs to the link state. As with NVIDIA's driver (580, on an H200), a state is completed once, and inputs
 * that are valid one by one but not together are an unknown error, which the log explains.
 */
CUresult pg_cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
	struct link *l = link_find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&linkLock);
	bool again = l->complete;
	l->complete = true; /* no more inputs are accepted */
	pthread_mutex_unlock(&linkLock);
	struct linked_header *h = (struct linked_header *)l->image;
	if (!again) {
		h->purpose = LINKED_TO_LINK;
		l->result = check(l, l->image, l->bytes, &l->jit);
		h->purpose = LINKED_TO_LOAD;
		if (l->result == CUDA_ERROR_INVALID_PTX)
			l->result = CUDA_ERROR_UNKNOWN;
	}
	if (l->result != CUDA_SUCCESS)
		return l->result;
	if (again)
		return CUDA_ERROR_INVALID_HANDLE;
	*image = l->image;
	if (size)
		*size = l->bytes;
	return CUDA_SUCCESS;
}

CUresult pg_cuLinkDestroy(CUlinkState state)
{
	struct link *l = link_find(state);
	if (!l || !handle_retire(l))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&linkLock);
	free(l->image);
	l->image = NULL;
	pthread_mutex_unlock(&linkLock);
	handle_free(&links, l);
	return CUDA_SUCCESS;
}
