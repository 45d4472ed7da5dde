/* Textures and surfaces: references and objects, over linear memory and arrays of all shapes: textures NAME. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* Each thread reads four coordinates, executes a body, and writes its result. */
#define KERNEL(name, body)                                                                         \
	".visible .entry " name "(.param .u64 in, .param .u64 out, .param .u64 handle)\n{\n"       \
	"	.reg .b32 %t, %x, %y, %z, %w, %a, %b, %c, %d;\n	.reg .b64 %i, %o, %n, %h;\n"            \
	"	ld.param.u64 %i, [in];\n	ld.param.u64 %o, [out];\n	ld.param.u64 %h, [handle];\n"       \
	"	mov.u32 %t, %tid.x;\n	mul.wide.u32 %n, %t, 16;\n	add.u64 %i, %i, %n;\n"             \
	"	mul.wide.u32 %n, %t, 4;\n	add.u64 %o, %o, %n;\n	mov.b32 %a, 0;\n"                   \
	"	ld.global.v4.b32 {%x, %y, %z, %w}, [%i];\n	" body "\n	st.global.b32 [%o], %a;\n	ret;\n}\n"

static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".global .texref line;\n.global .texref flat;\n.global .surfref board;\n.global .u32 plain;\n"
	KERNEL("line_at", "tex.1d.v4.f32.s32 {%a, %b, %c, %d}, [line, {%x}];")
	KERNEL("flat_at", "tex.2d.v4.f32.f32 {%a, %b, %c, %d}, [flat, {%x, %y}];")
	KERNEL("board_set", "sust.b.2d.b32.trap [board, {%x, %y}], %z;")
	KERNEL("board_add", "sured.b.add.2d.u32.zero [board, {%x, %y}], %z;")
	KERNEL("solid_at", "tex.3d.v4.f32.f32 {%a, %b, %c, %d}, [%h, {%x, %y, %z, %w}];")
	KERNEL("layer_at", "tex.a2d.v4.f32.s32 {%a, %b, %c, %d}, [%h, {%x, %y, %z, %w}];")
	KERNEL("cube_at", "tex.cube.v4.f32.f32 {%a, %b, %c, %d}, [%h, {%x, %y, %z, %w}];")
	KERNEL("surface_at", "suld.b.3d.b32.clamp %a, [%h, {%x, %y, %z, %w}];")
	KERNEL("surface_set", "sust.b.3d.b32.trap [%h, {%x, %y, %z, %x}], %w;")
	KERNEL("wide", "suq.width.b32 %a, [%h];");

static CUmodule module;
static CUdeviceptr in, out;

static uint32_t bits(float f)
{
	uint32_t u;
	memcpy(&u, &f, sizeof u);
	return u;
}

/* Returns the result of a kernel of one thread. */
static CUresult ask(const char *kernel, CUtexObject handle, const uint32_t coordinates[4], float *answer)
{
	CUfunction f;
	void *args[] = {&in, &out, &handle};
	CHECK(cuModuleGetFunction(&f, module, kernel));
	CHECK(cuMemcpyHtoD(in, coordinates, 16));
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	return cuMemcpyDtoH(answer, out, sizeof *answer);
}

static float read_at(const char *kernel, CUtexObject handle, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	uint32_t at[4] = {x, y, z, w};
	float answer;
	CHECK(ask(kernel, handle, at, &answer));
	return answer;
}

/* An array with the element at x, y, z equal to x + 10y + 100z. */
static CUarray numbered(size_t width, size_t height, size_t depth, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = width, .Height = height, .Depth = depth, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = flags,
	};
	size_t rows = height ? height : 1, slices = depth ? depth : 1;
	float *values = malloc(width * rows * slices * sizeof *values);
	for (size_t i = 0; i < width * rows * slices; i++)
		values[i] = (float)(i % width + 10 * (i / width % rows) + 100 * (i / width / rows));
	CUarray a;
	CHECK(cuArray3DCreate(&a, &d));
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = values, .srcPitch = width * sizeof *values, .srcHeight = rows,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a,
		.WidthInBytes = width * sizeof *values, .Height = rows, .Depth = slices,
	};
	CHECK(cuMemcpy3D(&c));
	free(values);
	return a;
}

static CUtexObject texture_of(CUarray a, CUfilter_mode filter)
{
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a};
	CUDA_TEXTURE_DESC d = {
		.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}, .filterMode = filter,
	};
	CUtexObject t;
	CHECK(cuTexObjectCreate(&t, &r, &d, NULL));
	return t;
}

static CUsurfObject surface_of(CUarray a)
{
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a}, again;
	CUsurfObject s;
	CHECK(cuSurfObjectCreate(&s, &r));
	CHECK(cuSurfObjectGetResourceDesc(&again, s));
	CLAIM(again.resType == CU_RESOURCE_TYPE_ARRAY && again.res.array.hArray == a);
	return s;
}

/* --- references --- */

static void linear(void)
{
	CUtexref r, again;
	CUdeviceptr memory, address;
	size_t offset = 7;
	float values[256];
	for (int i = 0; i < 256; i++)
		values[i] = (float)i / 2;
	CHECK(cuMemAlloc(&memory, sizeof values));
	CHECK(cuMemcpyHtoD(memory, values, sizeof values));
	CHECK(cuModuleGetTexRef(&r, module, "line"));
	CHECK(cuModuleGetTexRef(&again, module, "line"));
	CLAIM(r == again);
	CHECK(cuTexRefSetFormat(r, CU_AD_FORMAT_FLOAT, 1));
	CHECK(cuTexRefSetAddress(&offset, r, memory, sizeof values));
	CLAIM(offset == 0);
	CHECK(cuTexRefGetAddress(&address, r));
	CLAIM(address == memory);
	CLAIM(read_at("line_at", 0, 3, 0, 0, 0) == 1.5f);
	CLAIM(read_at("line_at", 0, 255, 0, 0, 0) == 127.5f);
	CLAIM(read_at("line_at", 0, 256, 0, 0, 0) == 0); /* reads beyond linear memory give 0 */
	CLAIM(read_at("line_at", 0, (uint32_t)-1, 0, 0, 0) == 0);
	CHECK(cuTexRefSetAddress(&offset, r, memory + 64, 128));
	CLAIM(offset == 64);
	CLAIM(read_at("line_at", 0, 64 / 4 + 31, 0, 0, 0) == (64 / 4 + 31) / 2.0f);
	CLAIM(read_at("line_at", 0, 64 / 4 + 32, 0, 0, 0) == 0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(NULL, r, memory + 64, 128));

	/* As bytes normalised to 0 to 1. */
	CHECK(cuMemsetD8(memory, 51, 16));
	CHECK(cuTexRefSetFormat(r, CU_AD_FORMAT_UNSIGNED_INT8, 1));
	CHECK(cuTexRefSetAddress(&offset, r, memory, 16));
	CLAIM(read_at("line_at", 0, 15, 0, 0, 0) == 0.2f);
}

static void array(void)
{
	CUtexref r;
	CUarray a = numbered(4, 3, 0, 0), got;
	unsigned flags;
	CUfilter_mode filter;
	CUaddress_mode mode;
	CHECK(cuModuleGetTexRef(&r, module, "flat"));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&got, r));
	CHECK(cuTexRefSetArray(r, a, CU_TRSA_OVERRIDE_FORMAT));
	CHECK(cuTexRefGetArray(&got, r));
	CLAIM(got == a);
	CLAIM(read_at("flat_at", 0, bits(3), bits(2), 0, 0) == 23);
	CHECK(cuTexRefSetFilterMode(r, CU_TR_FILTER_MODE_LINEAR));
	CHECK(cuTexRefSetAddressMode(r, 0, CU_TR_ADDRESS_MODE_CLAMP));
	CHECK(cuTexRefSetAddressMode(r, 1, CU_TR_ADDRESS_MODE_CLAMP));
	CLAIM(read_at("flat_at", 0, bits(1), bits(2), 0, 0) == 15.5f);
	CHECK(cuTexRefSetFlags(r, CU_TRSF_NORMALIZED_COORDINATES));
	CHECK(cuTexRefSetAddressMode(r, 0, CU_TR_ADDRESS_MODE_WRAP));
	CLAIM(read_at("flat_at", 0, bits(1), bits(0), 0, 0) == 1.5f); /* between the last and the first */
	CHECK(cuTexRefGetFlags(&flags, r));
	CHECK(cuTexRefGetFilterMode(&filter, r));
	CHECK(cuTexRefGetAddressMode(&mode, r, 1));
	CLAIM(flags == CU_TRSF_NORMALIZED_COORDINATES && filter == CU_TR_FILTER_MODE_LINEAR && mode == CU_TR_ADDRESS_MODE_CLAMP);
	/* Properties may be set after the array was destroyed, and before another one is set. */
	CHECK(cuArrayDestroy(a));
	CHECK(cuTexRefSetFlags(r, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&got, r));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetArray(r, a, CU_TRSA_OVERRIDE_FORMAT));
	CHECK(cuTexRefSetArray(r, numbered(4, 3, 0, 0), CU_TRSA_OVERRIDE_FORMAT));
	CLAIM(read_at("flat_at", 0, bits(1), bits(2), 0, 0) == 15.5f);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFilterMode(r, 7));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddressMode(r, 3, CU_TR_ADDRESS_MODE_WRAP));
}

/* Earlier launches keep the reference's old state. */
static void rebound(void)
{
	enum { TIMES = 300 };
	CUtexref r;
	CUdeviceptr memory[2], results;
	CUfunction f;
	CUstream s;
	float values[TIMES];
	CUtexObject none = 0;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuModuleGetTexRef(&r, module, "line"));
	CHECK(cuModuleGetFunction(&f, module, "line_at"));
	CHECK(cuTexRefSetFormat(r, CU_AD_FORMAT_FLOAT, 1));
	CHECK(cuMemAlloc(&results, sizeof values));
	CHECK(cuMemsetD8(in, 0, 16));
	for (int i = 0; i < 2; i++) {
		CHECK(cuMemAlloc(&memory[i], 512));
		CHECK(cuMemsetD32(memory[i], bits((float)i + 1), 128));
	}
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < TIMES; i++) {
		CUdeviceptr to = results + 4 * (CUdeviceptr)i;
		void *args[] = {&in, &to, &none};
		CHECK(cuTexRefSetAddress(NULL, r, memory[i % 2], 512));
		CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
	}
	CHECK(cuStreamSynchronize(s));
	CHECK(cuMemcpyDtoH(values, results, sizeof values));
	for (int i = 0; i < TIMES; i++)
		CLAIM(values[i] == (float)(i % 2 + 1));
}

static void surface_reference(void)
{
	CUsurfref r;
	CUtexref t;
	CUarray a = numbered(4, 3, 0, CUDA_ARRAY3D_SURFACE_LDST), deaf = numbered(4, 3, 0, 0), got;
	float answer;
	CHECK(cuModuleGetSurfRef(&r, module, "board"));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfRefSetArray(r, deaf, 0));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetArray((CUtexref)r, a, CU_TRSA_OVERRIDE_FORMAT));
	CHECK(cuSurfRefSetArray(r, a, 0));
	CHECK(cuSurfRefGetArray(&got, r));
	CLAIM(got == a);
	read_at("board_set", 0, 8, 1, bits(0.25f), 0);
	read_at("board_add", 0, 8, 1, 1 << 24, 0); /* twice the exponent's step: four times as much */
	read_at("board_add", 0, 16, 1, 1 << 24, 0); /* beyond the edge */
	CHECK(cuModuleGetTexRef(&t, module, "flat"));
	CHECK(cuTexRefSetArray(t, a, CU_TRSA_OVERRIDE_FORMAT));
	CLAIM(read_at("flat_at", 0, bits(2), bits(1), 0, 0) == 1);
	CLAIM(read_at("flat_at", 0, bits(3), bits(1), 0, 0) == 13);
	uint32_t beyond[4] = {16, 0, 0, 0};
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, ask("board_set", 0, beyond, &answer));
}

static void names(void)
{
	CUtexref t;
	CUsurfref s;
	CUdeviceptr address;
	size_t bytes;
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&t, module, "board"));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&t, module, "plain"));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&s, module, "line"));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal(&address, &bytes, module, "line"));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal(&address, &bytes, module, "board"));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&address, &bytes, module, "nothing"));
	CHECK(cuModuleGetGlobal(&address, &bytes, module, "plain"));
	CLAIM(bytes == 4);
	CHECK(cuModuleGetTexRef(&t, module, "line"));
	CHECK(cuModuleUnload(module));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags(t, 0));
}

/* An unbound reference causes a fault. */
static void unbound(void)
{
	float answer;
	uint32_t at[4] = {0};
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, ask("line_at", 0, at, &answer));
}

/* --- objects --- */

static void shapes(void)
{
	CUarray solid = numbered(4, 3, 5, 0), layers = numbered(4, 3, 5, CUDA_ARRAY3D_LAYERED), cube = numbered(2, 2, 6, CUDA_ARRAY3D_CUBEMAP), bad;
	CUtexObject t = texture_of(solid, CU_TR_FILTER_MODE_LINEAR);
	CLAIM(read_at("solid_at", t, bits(1), bits(2), bits(3), 0) == 0.5f + 15 + 250);
	CHECK(cuTexObjectDestroy(t));
	t = texture_of(layers, CU_TR_FILTER_MODE_POINT);
	CLAIM(read_at("layer_at", t, 4, 3, 2, 0) == 423);
	CLAIM(read_at("layer_at", t, 9, 9, 9, 0) == 423);
	t = texture_of(cube, CU_TR_FILTER_MODE_POINT);
	CLAIM(read_at("cube_at", t, bits(-2), bits(1), bits(1), 0) == 101);
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 2, .Height = 3, .Depth = 6, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_CUBEMAP};
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(&bad, &d));
}

static void surface_objects(void)
{
	CUarray solid = numbered(4, 3, 2, CUDA_ARRAY3D_SURFACE_LDST), undeclared = numbered(4, 3, 2, 0);
	CUDA_RESOURCE_DESC r;
	CUsurfObject s = surface_of(undeclared); /* without CUDA_ARRAY3D_SURFACE_LDST */
	CLAIM(read_at("surface_at", s, 12, 2, 1, 0) == 123);
	CHECK(cuSurfObjectDestroy(s));
	s = surface_of(solid);
	CLAIM(read_at("surface_at", s, 12, 2, 1, 0) == 123);
	CLAIM(read_at("surface_at", s, 96, 99, 99, 0) == 123);
	read_at("surface_set", s, 4, 1, 0, bits(7.5f));
	CLAIM(read_at("solid_at", texture_of(solid, CU_TR_FILTER_MODE_POINT), bits(1), bits(1), bits(0), 0) == 7.5f);
	CLAIM(bits(read_at("wide", s, 0, 0, 0, 0)) == 4);
	CHECK(cuSurfObjectDestroy(s));
	CHECK(cuSurfObjectDestroy(s));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectGetResourceDesc(&r, s));
	float answer;
	uint32_t at[4] = {99, 2, 1, 0};
	EXPECT(CUDA_ERROR_MISALIGNED_ADDRESS, ask("surface_at", surface_of(solid), at, &answer)); /* also where it is clamped */
}

static CUsurfObject destroyed_surface(void)
{
	CUsurfObject s = surface_of(numbered(4, 3, 2, CUDA_ARRAY3D_SURFACE_LDST));
	CLAIM(bits(read_at("wide", s, 0, 0, 0, 0)) == 4);
	CHECK(cuSurfObjectDestroy(s));
	return s;
}

static void surface_gone(void)
{
	CUsurfObject s = destroyed_surface();
	float answer;
	uint32_t at[4] = {0};
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, ask("wide", s, at, &answer));
}

/* On a GPU the destruction reaches the driver after the end of earlier work. */
static void surface_gone_later(void)
{
	CUsurfObject s = destroyed_surface();
	CUresult r = CUDA_SUCCESS;
	float answer;
	uint32_t at[4] = {0};
	for (int i = 0; i < 500 && (r = ask("wide", s, at, &answer)) == CUDA_SUCCESS; i++)
		usleep(10000);
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, r);
}

/* Each of many textures has a handle of its own, whether the library or the device chooses it. */
static void handles(void)
{
	enum { MANY = 6 };
	CUtexObject t[MANY];
	CUarray a[MANY];
	CUDA_RESOURCE_DESC r;
	for (int i = 0; i < MANY; i++) {
		a[i] = numbered((size_t)i + 2, 3, 2, 0);
		t[i] = texture_of(a[i], CU_TR_FILTER_MODE_POINT);
		for (int k = 0; k < i; k++)
			CLAIM(t[k] != t[i]);
	}
	CHECK(cuTexObjectDestroy(t[0]));
	t[0] = texture_of(a[0], CU_TR_FILTER_MODE_POINT);
	CHECK(cuTexObjectDestroy(t[3]));
	CUDA_TEXTURE_DESC how;
	CUDA_RESOURCE_VIEW_DESC view;
	CHECK(cuTexObjectDestroy(t[3]));
	CHECK(cuTexObjectDestroy(0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&r, t[3]));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetTextureDesc(&how, t[3]));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceViewDesc(&view, t[3]));
	for (int i = 0; i < MANY; i++) {
		if (i == 3)
			continue;
		CHECK(cuTexObjectGetResourceDesc(&r, t[i]));
		CLAIM(r.res.array.hArray == a[i]);
		CLAIM(read_at("solid_at", t[i], bits(99), bits(0), bits(0), 0) == (float)(i + 1)); /* the last of its row */
		CHECK(cuTexObjectDestroy(t[i]));
	}
}

/* Where the device chooses handles, creation reports errors, and leaves nothing behind. */
static void refused(void)
{
	CUarray a = numbered(4, 3, 2, 0), more = numbered(5, 3, 2, 0);
	CUdeviceptr freed;
	CUtexObject t, other;
	CHECK(cuMemAlloc(&freed, 4096));
	CHECK(cuMemFree(freed));
	CHECK(cuCtxSynchronize());
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR,
		.res.linear = {.devPtr = freed, .format = CU_AD_FORMAT_FLOAT, .numChannels = 1, .sizeInBytes = 64}};
	CUDA_TEXTURE_DESC d = {0};
	for (int i = 0; i < 3; i++)
		EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &r, &d, NULL));
	CHECK(cuCtxSynchronize());
	t = texture_of(a, CU_TR_FILTER_MODE_POINT);
	other = texture_of(more, CU_TR_FILTER_MODE_POINT);
	CLAIM(read_at("solid_at", t, bits(99), bits(0), bits(0), 0) == 3);
	CLAIM(read_at("solid_at", other, bits(99), bits(0), bits(0), 0) == 4);
	CHECK(cuTexObjectDestroy(t));
	CLAIM(read_at("solid_at", other, bits(99), bits(0), bits(0), 0) == 4);
	CHECK(cuTexObjectDestroy(t));
	CHECK(cuTexObjectDestroy(other));
}

static void gone(void)
{
	CUarray a = numbered(4, 3, 2, 0);
	CUtexObject t = texture_of(a, CU_TR_FILTER_MODE_POINT);
	CHECK(cuArrayDestroy(a));
	float answer;
	uint32_t at[4] = {0};
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, ask("solid_at", t, at, &answer));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"linear", linear}, {"array", array}, {"rebound", rebound}, {"surface-reference", surface_reference}, {"names", names},
		{"unbound", unbound}, {"shapes", shapes}, {"surface-objects", surface_objects}, {"surface-gone", surface_gone}, {"surface-gone-later", surface_gone_later},
		{"gone", gone}, {"handles", handles}, {"refused", refused},
	};
	CUcontext c;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&c, 0, 0));
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuMemAlloc(&in, 16));
	CHECK(cuMemAlloc(&out, 16));
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc == 2 && strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	return 2;
}
