/* Texture and surface references. */
#ifndef PEGASUS_API_REFERENCE_H
#define PEGASUS_API_REFERENCE_H

#include "object/array.h"

#define REFERENCE_FLAGS (unsigned)(CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION)

/* A reference of a module; the references' lock guards its fields. */
struct reference {
	struct object object;
	uint64_t module; /* handle */
	uint32_t wireContext, wireModule;
	uint64_t address; /* of the variable, which identifies it in kernels */
	bool isSurface, isSet;
	CUDA_RESOURCE_DESC resource; /* if set */
	CUDA_TEXTURE_DESC texture;
	CUarray_format format; /* of linear memory */
	int channels;
	struct texture *bound; /* the bound object, or NULL */
};

/* Drops the references to a module that is unloaded. */
void reference_module_gone(uint64_t module);

/* REFERENCES_LOCKED holds the lock until the end of the scope. */
void references_lock(void);
void references_unlock(const bool *);
#define REFERENCES_LOCKED __attribute__((cleanup(references_unlock), unused)) const bool references_locked = (references_lock(), true)

/* The functions below require the lock. */

/* Finds a reference by handle: CUDA_ERROR_INVALID_HANDLE if there is none of that kind. */
CUresult reference_of(void *handle, bool isSurface, struct reference **r);
/* Applies changed properties to a reference that is bound; launches from now on use them. */
CUresult reference_changed(struct reference *r);

#endif
