#define _GNU_SOURCE
#include "work/hostmap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/device.h"
#include "core/zz_impl.h"
#include "object/object.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define PAGE UINT64_C(4096)

/*
 * Whole pages of the program that lie in the arena. They contain only registered memory, or also the header and the
 * rest of its malloc chunk: a forked child shares the pages with its parent until its first handler runs, and the C
 * library writes to its heap before that.
 */
struct hostmap {
	uint64_t at, bytes, offset;
	uint64_t device;    /* address of the registered memory; 0: unregistered, but its pages could not be moved out */
	struct area *areas; /* during a fork: the areas that the program has not unmapped, with its access permissions, */
	size_t count;       /* their number, */
	void *copy;         /* and a copy of the pages for the child, or NULL */
	struct hostmap *next;
};

/*
 * Changes of the list need both locks, in this order. Forks hold the first one. The second one is never held during a
 * call that can block, so copies continue while handlers of the program wait for threads that copy.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t listLock = PTHREAD_MUTEX_INITIALIZER;
static struct hostmap *maps;
static _Atomic bool any;

/* State of a section that holds the lock: cancellation is disabled, and errno is restored at its end. */
struct calm {
	int cancelable, number;
};

static struct calm calm_begin(void)
{
	struct calm c = {.number = errno};
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c.cancelable);
	return c;
}

static void calm_end(const struct calm *c)
{
	pthread_setcancelstate(c->cancelable, NULL);
	errno = c->number;
}

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

/* Sanitizers report reads of bytes between allocations, which whole pages contain. */
#define UNCHECKED __attribute__((no_sanitize_address, no_sanitize_thread, noinline))

static UNCHECKED void copy_pages(void *to, const void *from, uint64_t bytes)
{
	volatile uint64_t *t = to;
	const volatile uint64_t *f = from;
	for (uint64_t i = 0; i < bytes / sizeof *t; i++)
		t[i] = f[i];
}

/* Makes pages present: only present pages can be protected. */
static UNCHECKED void touch_pages(const void *at, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += PAGE)
		(void)((const volatile uint8_t *)at)[i];
}

/* --- mappings in the kernel --- */

struct area {
	uint64_t begin, end, offset; /* in its file */
	bool readable, writable, shared, executable;
	bool plain; /* memory of the process or of a file, not a special mapping of the kernel */
	dev_t device;
	ino_t inode;
};

static bool read_area(FILE *f, struct area *a)
{
	char line[512], perms[5];
	unsigned long long begin, end, offset, inode;
	unsigned major, minor;
	int name = 0;
	if (!fgets(line, sizeof line, f) ||
		sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &begin, &end, perms, &offset, &major, &minor, &inode, &name) < 7)
		return false;
	bool special = name && line[name] == '[' && strncmp(line + name, "[heap]", 6) != 0 && strncmp(line + name, "[anon", 5) != 0;
	*a = (struct area){
		.begin = begin, .end = end, .offset = offset, .readable = perms[0] == 'r', .writable = perms[1] == 'w', .executable = perms[2] == 'x',
		.shared = perms[3] == 's', .plain = !special, .device = (dev_t)major << 32 | minor, .inode = inode,
	};
	while (!strchr(line, '\n') && fgets(line, sizeof line, f))
		;
	return true;
}

/* Returns the areas that overlap a range, in order, in an array that the caller frees; NULL for none. */
static struct area *areas_of(uint64_t at, uint64_t end, size_t *count)
{
	struct area *all = NULL, a;
	size_t room = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	*count = 0;
	while (f && read_area(f, &a)) {
		if (a.end <= at || a.begin >= end)
			continue;
		if (*count == room) {
			room = room ? 2 * room : 8;
			struct area *larger = realloc(all, room * sizeof *all);
			if (!larger)
				break;
			all = larger;
		}
		a.offset += a.begin < at ? at - a.begin : 0;
		a.begin = a.begin < at ? at : a.begin;
		a.end = a.end > end ? end : a.end;
		all[(*count)++] = a;
	}
	if (f)
		fclose(f);
	return all;
}

/*
 * Reports whether an area contains memory that the calling thread writes while it moves pages: its stack frames, its
 * thread descriptor or errno.
 */
static bool in_use(const struct area *a)
{
	const uint64_t frame = (uint64_t)(uintptr_t)__builtin_frame_address(0), own = (uint64_t)(uintptr_t)pthread_self(),
		number = (uint64_t)(uintptr_t)&errno;
	enum { ABOVE = 1024, DESCRIPTOR = 2304 }; /* frames slightly older than this one; size of glibc's thread descriptor */
	bool stack = frame + ABOVE > a->begin && frame - 16 * PAGE < a->end;
	return stack || (own + DESCRIPTOR > a->begin && own < a->end) || (number >= a->begin && number < a->end);
}

/*
 * Reports whether an area has pages beyond the end of its file, where accesses raise SIGBUS. Kernels before 5.14 do not
 * report it.
 */
static bool ends_early(const struct area *a)
{
	return madvise(pointer(a->begin), a->end - a->begin, MADV_POPULATE_READ) != 0 && errno == EFAULT;
}

static CUresult check_areas(const struct area *all, size_t count, uint64_t at, uint64_t end, bool readOnly)
{
	for (size_t i = 0; i < count; i++) {
		const struct area *a = &all[i];
		if (a->begin != at)
			break;
		if (!a->readable || (!a->writable && !readOnly))
			return CUDA_ERROR_INVALID_VALUE;
		if (a->shared || a->executable || !a->plain || in_use(a))
			return CUDA_ERROR_NOT_SUPPORTED;
		if (a->inode && ends_early(a))
			return CUDA_ERROR_INVALID_VALUE;
		at = a->end;
	}
	return at == end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- moving pages --- */

/* Prevents other threads from changing pages while they are moved: a write blocks until the guard ends. */
struct guard {
	int fd; /* -1: there is no other thread */
	sigset_t before;
};

static bool alone(void)
{
	struct stat s;
	return stat("/proc/self/task", &s) == 0 && s.st_nlink == 3;
}

static bool protect(int fd, const struct area *all, size_t count)
{
	/* A kernel without the second feature could block writes while pages move in, but not while they move out. */
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	if (ioctl(fd, UFFDIO_API, &api) != 0)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct uffdio_range range = {.start = all[i].begin, .len = all[i].end - all[i].begin};
		struct uffdio_register watch = {.range = range, .mode = UFFDIO_REGISTER_MODE_WP};
		struct uffdio_writeprotect hold = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
		if (!all[i].writable)
			continue;
		touch_pages(pointer(range.start), range.len);
		if (ioctl(fd, UFFDIO_REGISTER, &watch) != 0 || ioctl(fd, UFFDIO_WRITEPROTECT, &hold) != 0)
			return false;
	}
	return true;
}

static void guard_end(struct guard *g, const struct area *all, size_t count)
{
	struct uffdio_range range = {.start = all[0].begin, .len = all[count - 1].end - all[0].begin};
	if (g->fd >= 0) {
		ioctl(g->fd, UFFDIO_WAKE, &range);
		close(g->fd);
	}
	pthread_sigmask(SIG_SETMASK, &g->before, NULL);
}

/*
 * The calling thread must not write to the areas until the guard ends, so signals are blocked. Where only a privileged
 * process may make the kernel itself wait, another thread's system call that writes there fails meanwhile.
 */
static bool guard_begin(struct guard *g, const struct area *all, size_t count)
{
	sigset_t every;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &g->before);
	g->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (g->fd < 0)
		g->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (g->fd >= 0 && protect(g->fd, all, count))
		return true;
	if (g->fd >= 0)
		close(g->fd);
	g->fd = -1;
	if (alone())
		return true;
	pthread_sigmask(SIG_SETMASK, &g->before, NULL);
	return false;
}

/*
 * put_in_place replaces the pages at `at` by those at `from`, which have the same bytes. The kernel refuses if the
 * process has reached its limit of mappings, and may have unmapped the old pages by then. New private pages at `at`
 * then get the bytes (PLACED_COPY). PLACED_NOT: these could not be mapped either.
 */
enum placed { PLACED_NOT, PLACED_COPY, PLACED };

static enum placed put_in_place(void *from, uint64_t at, uint64_t bytes)
{
	if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(at)) != MAP_FAILED)
		return PLACED;
	bool own = mmap(pointer(at), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	if (own)
		copy_pages(pointer(at), from, bytes);
	munmap(from, bytes);
	return own ? PLACED_COPY : PLACED_NOT;
}

/* Restores each area's access permissions. */
static void keep_access(const struct area *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!all[i].readable || !all[i].writable)
			mprotect(pointer(all[i].begin), all[i].end - all[i].begin,
				(all[i].readable ? PROT_READ : 0) | (all[i].writable ? PROT_WRITE : 0));
}

/* Copies an area to which the program may have no access. */
static void copy_area(void *to, const struct area *a)
{
	uint64_t bytes = a->end - a->begin;
	if (!a->readable)
		mprotect(pointer(a->begin), bytes, PROT_READ | (a->writable ? PROT_WRITE : 0));
	copy_pages(to, pointer(a->begin), bytes);
	if (!a->readable)
		keep_access(a, 1);
}

/* Maps the arena's pages a second time, or returns NULL: a virtual machine's device may not permit it. */
static void *arena_again(uint64_t offset, uint64_t bytes)
{
	void *again = mremap(arena_at(offset), 0, bytes, MREMAP_MAYMOVE);
	if (again == MAP_FAILED)
		return NULL;
	if (madvise(again, bytes, MADV_DOFORK) == 0)
		return again;
	munmap(again, bytes);
	return NULL;
}

static CUresult move_in(const struct hostmap *m, const struct area *all, size_t count)
{
	struct guard g;
	void *again = arena_again(m->offset, m->bytes);
	if (!again)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!guard_begin(&g, all, count)) {
		munmap(again, m->bytes);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	copy_pages(again, pointer(m->at), m->bytes);
	bool moved = put_in_place(again, m->at, m->bytes) == PLACED;
	keep_access(all, count);
	guard_end(&g, all, count);
	return moved ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Moves an area out of the arena; false if its pages have to stay there. */
static bool move_out_area(const struct area *a)
{
	struct guard g;
	uint64_t bytes = a->end - a->begin;
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (own == MAP_FAILED)
		return false;
	if (in_use(a) || !guard_begin(&g, a, 1)) {
		munmap(own, bytes);
		return false;
	}
	copy_area(own, a);
	bool moved = put_in_place(own, a->begin, bytes) != PLACED_NOT;
	keep_access(a, 1);
	guard_end(&g, a, 1);
	return moved;
}

/* Reports whether an area maps the arena at a map's place; arena is the area of its first page. */
static bool shows(const struct area *a, const struct hostmap *m, const struct area *arena)
{
	return a->shared && arena->shared && a->device == arena->device && a->inode == arena->inode &&
		a->offset - arena->offset == a->begin - m->at;
}

/* The program may have unmapped a part meanwhile, and mapped something else there. */
static bool move_out(const struct hostmap *m)
{
	size_t count, arenas;
	uint64_t there = (uint64_t)(uintptr_t)arena_at(m->offset);
	struct area *all = areas_of(m->at, m->at + m->bytes, &count), *arena = areas_of(there, there + 1, &arenas);
	bool out = arenas == 1;
	for (size_t i = 0; i < count && arenas == 1; i++)
		if (shows(&all[i], m, arena))
			out = move_out_area(&all[i]) && out;
	free(all);
	free(arena);
	return out;
}

/* --- maps --- */

static void add_to_list(struct hostmap *m)
{
	pthread_mutex_lock(&listLock);
	m->next = maps;
	maps = m;
	any = true;
	pthread_mutex_unlock(&listLock);
}

/* Returns a map's pages to the program, or records that they could not be moved. */
static bool release(struct hostmap **at)
{
	struct hostmap *m = *at;
	bool out = move_out(m);
	pthread_mutex_lock(&listLock);
	m->device = 0;
	if (out)
		*at = m->next;
	any = maps != NULL;
	pthread_mutex_unlock(&listLock);
	if (out) {
		arena_give(m->offset, m->bytes);
		free(m);
	}
	return out;
}

/* Retries the restoration of pages that failed before: the program may have unmapped them or have fewer threads now. */
static void release_rest(void)
{
	for (struct hostmap **at = &maps; *at;)
		if ((*at)->device || !release(at))
			at = &(*at)->next;
}

static bool overlaps(uint64_t at, uint64_t end)
{
	for (const struct hostmap *m = maps; m; m = m->next)
		if (m->at < end && at < m->at + m->bytes)
			return true;
	return false;
}

/*
 * Reports whether the memory at an address is a chunk that glibc's malloc has mapped for it, so that no other
 * allocation shares its pages. The two words before it hold the distance to the chunk's begin and the chunk's size,
 * with a flag bit for mapped chunks.
 */
static bool has_own_pages(uint64_t address, const struct hostmap *m)
{
	enum { MMAPPED = 2, BITS = 7 };
	uint64_t head[2];
	size_t count;
	if (address % 16 || address < 2 * PAGE)
		return false;
	struct area *all = areas_of(address - sizeof head, m->at + m->bytes, &count);
	bool there = count == 1 && all->begin == address - sizeof head && all->readable && !all->inode;
	free(all);
	if (!there)
		return false;
	copy_pages(head, pointer(address - sizeof head), sizeof head);
	uint64_t begin = address - sizeof head - head[0], size = head[1] & ~(uint64_t)BITS;
	return (head[1] & BITS) == MMAPPED && head[0] < address && begin % PAGE == 0 && (head[0] + size) % PAGE == 0 && begin <= m->at &&
		size <= UINT64_MAX - address && address - sizeof head + size >= m->at + m->bytes;
}

static bool is_whole(const struct hostmap *m, const struct range *r)
{
	return (r->base == m->at && r->size == m->bytes) || has_own_pages(r->base, m);
}

/* Moves registered memory to the arena, and adds a range for its device addresses. */
static CUresult add(struct hostmap *m, const struct range *r)
{
	size_t count;
	struct range gone;
	const struct context *c = handle_find(&contexts, r->context);
	release_rest();
	if (!process.arenaShared || !c || !device_attribute(c->device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) || overlaps(m->at, m->at + m->bytes))
		return CUDA_ERROR_NOT_SUPPORTED;
	struct area *all = areas_of(m->at, m->at + m->bytes, &count);
	CUresult result = all ? check_areas(all, count, m->at, m->at + m->bytes, r->flags & CU_MEMHOSTREGISTER_READ_ONLY) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = is_whole(m, r) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS)
		result = arena_take(m->bytes, &m->offset);
	if (result != CUDA_SUCCESS) {
		free(all);
		return result;
	}
	m->device = (uint64_t)(uintptr_t)arena_at(m->offset) + (r->base - m->at);
	const struct range device = {
		.base = m->device, .size = r->size, .kind = RANGE_MAPPED, .context = r->context, .flags = r->flags, .owner = r->base,
	};
	result = range_add(&device) ? move_in(m, all, count) : CUDA_ERROR_OUT_OF_MEMORY;
	free(all);
	if (result != CUDA_SUCCESS) {
		range_remove(m->device, RANGE_MAPPED, &gone);
		arena_give(m->offset, m->bytes);
	}
	return result;
}

CUresult hostmap_device(const struct range *r, uint64_t *address)
{
	struct hostmap *m = calloc(1, sizeof *m);
	struct range now;
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const struct calm calm = calm_begin();
	m->at = r->base & ~(PAGE - 1);
	m->bytes = ((r->base + r->size + PAGE - 1) & ~(PAGE - 1)) - m->at;
	pthread_mutex_lock(&lock);
	CUresult result = CUDA_SUCCESS;
	bool there = range_find(r->base, &now) && now.kind == RANGE_REGISTERED && now.owner, gone = false;
	if (there)
		*address = now.owner;
	else
		result = add(m, r);
	bool added = !there && result == CUDA_SUCCESS;
	if (added) {
		*address = m->device;
		add_to_list(m);
		gone = !range_set_owner(r->base, RANGE_REGISTERED, m->device); /* another thread has unregistered it */
	}
	pthread_mutex_unlock(&lock);
	if (gone) {
		hostmap_drop(*address);
		result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	}
	if (!added)
		free(m);
	calm_end(&calm);
	return result;
}

void hostmap_drop(uint64_t device)
{
	struct range gone;
	const struct calm calm = calm_begin();
	range_remove(device, RANGE_MAPPED, &gone); /* unless it was removed with its context */
	pthread_mutex_lock(&lock);
	struct hostmap **at = &maps;
	while (*at && (*at)->device != device)
		at = &(*at)->next;
	if (*at)
		release(at);
	pthread_mutex_unlock(&lock);
	calm_end(&calm);
}

/* Pages that are no longer registered are treated as other memory of the program: it may have unmapped them. */
bool hostmap_find(uint64_t address, uint64_t bytes, uint64_t *offset)
{
	if (LIKELY(!atomic_load_explicit(&any, memory_order_acquire)))
		return false;
	pthread_mutex_lock(&listLock);
	const struct hostmap *m = maps;
	while (m && (!m->device || address - m->at >= m->bytes || bytes > m->bytes - (address - m->at)))
		m = m->next;
	if (m)
		*offset = m->offset + (address - m->at);
	pthread_mutex_unlock(&listLock);
	return m != NULL;
}

/* --- forks --- */

static void find_shown(struct hostmap *m)
{
	size_t arenas, count = 0;
	uint64_t there = (uint64_t)(uintptr_t)arena_at(m->offset);
	struct area *arena = areas_of(there, there + 1, &arenas);
	m->areas = areas_of(m->at, m->at + m->bytes, &m->count);
	for (size_t i = 0; i < m->count && arenas == 1; i++)
		if (shows(&m->areas[i], m, arena))
			m->areas[count++] = m->areas[i];
	m->count = count;
	free(arena);
}

/* The copies are made before the fork: the parent may change its pages while the child starts. */
void hostmap_before_fork(void)
{
	const struct calm calm = calm_begin();
	pthread_mutex_lock(&lock);
	for (struct hostmap *m = maps; m; m = m->next) {
		find_shown(m);
		void *own = m->count ? mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
		m->copy = own == MAP_FAILED ? NULL : own;
		for (size_t i = 0; m->copy && i < m->count; i++)
			copy_area((uint8_t *)own + (m->areas[i].begin - m->at), &m->areas[i]);
	}
	calm_end(&calm);
}

static void end_fork(struct hostmap *m, bool child)
{
	for (size_t i = 0; m->copy && child && i < m->count; i++) {
		const struct area *a = &m->areas[i];
		put_in_place((uint8_t *)m->copy + (a->begin - m->at), a->begin, a->end - a->begin);
		keep_access(a, 1);
	}
	if (m->copy)
		munmap(m->copy, m->bytes); /* frees the rest in the child */
	free(m->areas);
	m->areas = NULL;
	m->copy = NULL;
}

/* No other part of the library works in the child. */
void hostmap_after_fork(bool child)
{
	int saved = errno;
	for (struct hostmap *m = maps; m; m = m->next)
		end_fork(m, child);
	if (child) {
		maps = NULL;
		any = false;
		pthread_mutex_init(&lock, NULL);
		pthread_mutex_init(&listLock, NULL);
	} else
		pthread_mutex_unlock(&lock);
	errno = saved;
}
