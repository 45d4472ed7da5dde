/*
 * Device memory shared between processes: an extension of libcuda.so.1, as in Gdev, after shmget, shmat, shmdt and
 * shmctl. Include this file after cuda.h; link with -lcuda, or query cuGetProcAddress for the names.
 *
 * A segment belongs to a domain: all processes of the domain in which it was created, on the same accelerator, may use
 * it, and no others. Its initial contents are zeros. It counts once against the domain's memory quota, however many
 * processes use it, and stays on the device (on a GPU while at least one process has it attached). It outlives its
 * creator: until it is removed and no process has it attached, or until the last process of the domain has ended.
 * Synchronising access is up to the programs.
 */
#ifndef PEGASUS_CUDA_SHM_H
#define PEGASUS_CUDA_SHM_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A key that no segment is found by: cuShmGet makes a new one. Gdev refuses it; all others, 0 too, are keys. */
#define CU_SHM_PRIVATE (-1)

/* Commands of cuShmCtl, with Gdev's numbers. */
enum {
	CU_SHM_STAT = 1,   /* fills a CUshminfo */
	CU_SHM_REMOVE = 3, /* removes a segment: it cannot be attached any more, and its memory is freed after the last detach */
};

/* Gdev's names of the commands. */
#define GDEV_IPC_STAT 1
#define GDEV_IPC_SET 2 /* CUDA_ERROR_INVALID_VALUE */
#define GDEV_IPC_RMID 3

typedef struct CUshminfo_st {
	size_t bytes;
	int key;
	unsigned int attached; /* number of attachments, in all processes */
} CUshminfo;

/*
 * Finds the segment with the key, or makes it. For an existing segment bytesize must not exceed its size. With bytesize
 * 0 none is made: CUDA_ERROR_NOT_FOUND. CUDA_ERROR_OUT_OF_MEMORY: of the quota, of the device, or of the 512 segments
 * that a domain may have. flags: 0.
 */
CUresult CUDAAPI cuShmGet(int *id, int key, size_t bytesize, unsigned int flags);
/*
 * Makes a segment accessible to the current context, at *dptr. Each attachment has an address of its own.
 * CUDA_ERROR_INVALID_HANDLE: there is no such segment, or it was removed. flags: 0.
 */
CUresult CUDAAPI cuShmAt(CUdeviceptr *dptr, int id, unsigned int flags);
/* Ends the attachment at dptr, once the work queued before has ended. */
CUresult CUDAAPI cuShmDt(CUdeviceptr dptr);
/* argument: a CUshminfo * with CU_SHM_STAT; CU_SHM_REMOVE ignores it. */
CUresult CUDAAPI cuShmCtl(int id, int command, void *argument);

#ifdef __cplusplus
}
#endif

#endif
