/* The CUDA and the driver that programs are told of: a pair, as one driver of NVIDIA's has one CUDA. */
#ifndef PEGASUS_RELEASE_H
#define PEGASUS_RELEASE_H

/* Returns 1000 * major + 10 * minor: what $PEGASUS_CUDA names, else the CUDA of the driver that $PEGASUS_DRIVER names, else host's. */
int release_cuda(int host);
/* Returns the driver that $PEGASUS_DRIVER names, else the first one that had this CUDA. */
const char *release_driver(int cuda);

#endif
