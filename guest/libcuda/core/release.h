/* The CUDA and driver versions reported to programs: a pair, since each NVIDIA driver has one CUDA version. */
#ifndef PEGASUS_CORE_RELEASE_H
#define PEGASUS_CORE_RELEASE_H

/*
 * Returns 1000 * major + 10 * minor: the version in $PEGASUS_CUDA, else the CUDA version of the driver in
 * $PEGASUS_DRIVER, else host's.
 */
int release_cuda(int host);
/* Returns the driver version in $PEGASUS_DRIVER, else the first driver with this CUDA version. */
const char *release_driver(int cuda);

#endif
