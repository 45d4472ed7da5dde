#define _GNU_SOURCE
#include "work/pool_exports.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda.h"

#define POOL_MAGIC UINT64_C(0x324c4f5053474550) /* "PEGSPOL2" */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { MOST = 1 << 16 };

_Static_assert(sizeof(struct pool_export) == sizeof(CUmemPoolPtrExportData), "an entry fits");

/* The file. Pages without entries take no memory. */
struct file {
	uint64_t magic, name, unused[6];
	struct pool_export entries[MOST]; /* by number - 1 */
};

struct pool_exports {
	int file;
	dev_t device; /* of the file: the program may have closed the descriptor and reused its number */
	ino_t inode;
	struct file *map;  /* of exports_new */
	uint64_t serials;
	uint32_t entered;  /* entries from there on were never used */
	uint32_t *removed, removedCount, removedRoom; /* numbers of entries that are free again; other processes cannot reach them */
};

/*
 * Makes the mapping the only way to change the file. Kernels before 5.1 lack the seal. Without it a process that
 * imports the pool can mislead other importing processes, but not the owner, which does not read the entries' numbers
 * back.
 */
static bool seal(int file)
{
	if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
		return true;
	return fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Returns a table with a descriptor, which becomes its own; NULL without one or without memory. */
static struct pool_exports *table_of(int file)
{
	struct stat s;
	struct pool_exports *t = file >= 0 && fstat(file, &s) == 0 ? calloc(1, sizeof *t) : NULL;
	if (t)
		*t = (struct pool_exports){.file = file, .device = s.st_dev, .inode = s.st_ino};
	else if (file >= 0)
		close(file);
	return t;
}

/* Reports whether the descriptor still has the table's file. */
static bool intact(const struct pool_exports *t)
{
	struct stat s;
	return fstat(t->file, &s) == 0 && s.st_dev == t->device && s.st_ino == t->inode;
}

/* Reports whether the process may create a file as large as the table; otherwise the attempt would end it by SIGXFSZ. */
static bool size_allowed(void)
{
	struct rlimit most;
	return getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= sizeof(struct file);
}

struct pool_exports *exports_new(uint64_t name)
{
	if (!size_allowed())
		return NULL;
	struct pool_exports *t = table_of((int)syscall(SYS_memfd_create, "pegasus-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (!t)
		return NULL;
	if (ftruncate(t->file, sizeof *t->map) != 0) {
		exports_free(t);
		return NULL;
	}
	void *map = mmap(NULL, sizeof *t->map, PROT_READ | PROT_WRITE, MAP_SHARED, t->file, 0);
	t->map = map == MAP_FAILED ? NULL : map;
	if (!t->map || !seal(t->file)) {
		exports_free(t);
		return NULL;
	}
	madvise(t->map, sizeof *t->map, MADV_DONTFORK); /* a forked child has no pools */
	t->map->magic = POOL_MAGIC;
	t->map->name = name;
	return t;
}

/* Reports whether a file is in memory and keeps its size, so that reading it never blocks. */
static bool sealed(int file)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int seals = fcntl(file, F_GET_SEALS);
	return seals >= 0 && (seals & needed) == needed;
}

struct pool_exports *exports_open(int file, uint64_t *name)
{
	struct { uint64_t magic, name; } head;
	if (!sealed(file) || pread(file, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != POOL_MAGIC)
		return NULL;
	*name = head.name;
	return table_of(fcntl(file, F_DUPFD_CLOEXEC, 0));
}

void exports_free(struct pool_exports *t)
{
	if (!t)
		return;
	if (t->map)
		munmap(t->map, sizeof *t->map);
	if (intact(t))
		close(t->file);
	free(t->removed);
	free(t);
}

int exports_file(const struct pool_exports *t) { return intact(t) ? fcntl(t->file, F_DUPFD_CLOEXEC, 0) : -1; }

bool exports_add(struct pool_exports *t, struct pool_export *e)
{
	if (t->removedCount)
		e->number = t->removed[--t->removedCount];
	else if (t->entered < MOST)
		e->number = ++t->entered;
	else
		return false;
	e->serial = ++t->serials;
	t->map->entries[e->number - 1] = *e;
	return true;
}

void exports_remove(struct pool_exports *t, uint32_t number)
{
	t->map->entries[number - 1] = (struct pool_export){0};
	if (t->removedCount == t->removedRoom) {
		uint32_t room = t->removedRoom ? 2 * t->removedRoom : 64;
		uint32_t *more = realloc(t->removed, room * sizeof *more);
		if (!more)
			return; /* the entry stays unused */
		t->removed = more;
		t->removedRoom = room;
	}
	t->removed[t->removedCount++] = number;
}

struct pool_export exports_entry(const struct pool_exports *t, uint32_t number) { return t->map->entries[number - 1]; }

bool exports_contains(const struct pool_exports *t, const struct pool_export *e)
{
	struct pool_export entry;
	if (e->serial == 0 || e->number == 0 || e->number > MOST || !intact(t))
		return false;
	off_t at = (off_t)(offsetof(struct file, entries) + (e->number - 1) * sizeof entry);
	return pread(t->file, &entry, sizeof entry, at) == (ssize_t)sizeof entry && memcmp(&entry, e, sizeof entry) == 0;
}
