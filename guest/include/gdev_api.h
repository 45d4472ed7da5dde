/*
 * For programs that were written for Gdev's CUDA and include its API for the commands of cuShmCtl. Of Gdev's own API,
 * which goes without CUDA, there is nothing here.
 */
#ifndef PEGASUS_GDEV_API_H
#define PEGASUS_GDEV_API_H

#include "cuda_shm.h"

#endif
