/* Texture and surface references. */
#ifndef PEGASUS_API_REFERENCE_H
#define PEGASUS_API_REFERENCE_H

#include <stdint.h>

/* Drops the references to a module that is unloaded. */
void reference_module_gone(uint64_t module);

#endif
