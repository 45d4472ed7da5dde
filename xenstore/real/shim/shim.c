/*
 * Replaces xenstored's hypervisor calls, on a host without Xen: it is loaded before the
 * Xen libraries. XENSHIM is a directory in which files stand for domains.
 *
 *	page-N   domain N's page, of which the server has one half and the test the other
 *	bell-N   a FIFO: a byte wakes the test's end of domain N
 *	events   a FIFO: a port, 4 bytes, wakes the server. That of domain N is N+1
 *	gone-N   domain N doesn't exist
 *	down-N   domain N has shut down
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, VIRQ_PORT = 70000, DOMAINS = 0x7ff0 };

static char handle; /* all handles are its address */

static const char *path(char *to, size_t size, const char *kind, unsigned n)
{
	snprintf(to, size, "%s/%s-%u", getenv("XENSHIM"), kind, n);
	return to;
}

static int exists(const char *kind, unsigned domid)
{
	char name[256];

	return access(path(name, sizeof name, kind, domid), F_OK) == 0;
}

/* libxenctrl */

/* The beginning of xc_dominfo_t, which is all that xenstored reads. */
struct info {
	uint32_t domid, ssidref;
	unsigned dying : 1, crashed : 1, shutdown : 1;
};

void *xc_interface_open(void *logger, void *dombuild_logger, unsigned flags)
{
	(void)logger, (void)dombuild_logger, (void)flags;
	return &handle;
}

int xc_interface_close(void *xc)
{
	(void)xc;
	return 0;
}

int xc_domain_getinfo(void *xc, uint32_t first, unsigned max, struct info *info)
{
	(void)xc;
	if (max < 1 || first >= DOMAINS || exists("gone", first))
		return 0;
	memset(info, 0, sizeof *info);
	info->domid = first;
	info->shutdown = exists("down", first);
	return 1;
}

/* libxengnttab */

void *xengnttab_open(void *logger, unsigned flags)
{
	(void)logger, (void)flags;
	return &handle;
}

int xengnttab_close(void *xgt)
{
	(void)xgt;
	return 0;
}

int xengnttab_set_max_grants(void *xgt, uint32_t max)
{
	(void)xgt, (void)max;
	return 0;
}

static void *map(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *page = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, PAGE) == 0)
		page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return page == MAP_FAILED ? NULL : page;
}

void *xengnttab_map_grant_ref(void *xgt, uint32_t domid, uint32_t ref, int prot)
{
	char name[256];

	(void)xgt, (void)ref, (void)prot;
	return map(path(name, sizeof name, "page", domid));
}

int xengnttab_unmap(void *xgt, void *start, uint32_t count)
{
	(void)xgt;
	return munmap(start, count * PAGE);
}

/* libxenevtchn */

static int events = -1;

void *xenevtchn_open(void *logger, unsigned flags)
{
	char name[256];

	(void)logger, (void)flags;
	snprintf(name, sizeof name, "%s/events", getenv("XENSHIM"));
	events = open(name, O_RDWR | O_NONBLOCK);
	return events < 0 ? NULL : &handle;
}

void *xenevtchn_fdopen(void *logger, int fd, unsigned flags)
{
	(void)logger, (void)flags;
	events = fd;
	return &handle;
}

int xenevtchn_fd(void *xce)
{
	(void)xce;
	return events;
}

int xenevtchn_pending(void *xce)
{
	uint32_t port;

	(void)xce;
	return read(events, &port, sizeof port) == sizeof port ? (int)port : -1;
}

int xenevtchn_unmask(void *xce, uint32_t port)
{
	(void)xce, (void)port;
	return 0;
}

int xenevtchn_bind_interdomain(void *xce, uint32_t domid, uint32_t remote)
{
	(void)xce, (void)remote;
	return domid + 1;
}

int xenevtchn_bind_virq(void *xce, unsigned virq)
{
	(void)xce, (void)virq;
	return VIRQ_PORT;
}

int xenevtchn_unbind(void *xce, uint32_t port)
{
	(void)xce, (void)port;
	return 0;
}

int xenevtchn_notify(void *xce, uint32_t port)
{
	char name[256];
	int fd;

	(void)xce;
	fd = open(path(name, sizeof name, "bell", port - 1), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0; /* no reader */
	if (write(fd, "", 1) < 0 && errno != EAGAIN)
		perror(name);
	close(fd);
	return 0;
}

/* The kernel's files for domain 0. */

int open(const char *name, int flags, ...)
{
	static int (*libc_open)(const char *, int, ...);
	char other[256];
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (!libc_open)
		*(void **)&libc_open = dlsym(RTLD_NEXT, "open");
	if (strcmp(name, "/proc/xen/xsd_port") == 0) {
		snprintf(other, sizeof other, "%s/xsd_port", getenv("XENSHIM"));
		name = other;
	} else if (strcmp(name, "/proc/xen/xsd_kva") == 0) {
		name = path(other, sizeof other, "page", 0);
	}
	return libc_open(name, flags, mode);
}

int open64(const char *name, int flags, ...) __attribute__((alias("open")));
