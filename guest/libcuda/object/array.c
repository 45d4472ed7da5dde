#include "object/array.h"

struct table arrays = HANDLE_TABLE(HANDLE_ARRAY, struct array, 60000);
struct table mipmaps = HANDLE_TABLE(HANDLE_MIPMAP, struct mipmap, 60000);
struct table textures = HANDLE_TABLE(HANDLE_TEXTURE, struct texture, 60000);
struct table surfaces = HANDLE_TABLE(HANDLE_SURFACE, struct texture, 60000);

uint32_t array_format_bytes(CUarray_format format)
{
	switch ((unsigned)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}
