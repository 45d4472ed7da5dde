/*
 * In a virtual machine the socket to the worker leads to the machine's agent. When it hangs up, the agent has ended:
 * the worker, which runs on the host, continues, and so do calls, through the segment alone. When the worker is lost,
 * the host sets the poison word, or the next agent reports it.
 *
 * All of this runs within any API call: there are no cancellation points, nothing blocks, and errno is preserved.
 */
#define _GNU_SOURCE
#include "core/reconnect.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/futex.h"

static struct sockaddr_un agent;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static bool inode_of(int fd, ino_t *inode)
{
	struct stat s;
	if (fstat(fd, &s) != 0 || !S_ISSOCK(s.st_mode))
		return false;
	*inode = s.st_ino;
	return true;
}

void reconnect_prepare(const char *path)
{
	agent = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(agent.sun_path, path, strnlen(path, sizeof agent.sun_path - 1));
}

/* Reports whether the agent rejected this process before it hung up, since it has no worker for it. */
static bool refused(void)
{
	struct welcome w = {0};
	long n = syscall(SYS_recvfrom, process.socket, &w, sizeof w, MSG_DONTWAIT, NULL, NULL);
	return n == (long)WELCOME_BYTES && w.magic == WELCOME_MAGIC && w.result != 0;
}

/* Sends a hello to the current agent, if one runs, over a socket that gets the old one's number. */
static void come_back(void)
{
	const struct hello hello = {.magic = HELLO_MAGIC, .version = SEGMENT_VERSION, .features = HELLO_BACK};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	ino_t its;
	if (inode_of(fd, &its) && syscall(SYS_connect, fd, &agent, sizeof agent) == 0 &&
		syscall(SYS_sendto, fd, &hello, sizeof hello, MSG_NOSIGNAL, NULL, 0) == (long)sizeof hello &&
		dup3(fd, process.socket, O_CLOEXEC) >= 0) {
		process.socketInode = its;
		log_at(LOG_INFO, "the machine's agent has changed");
	}
	syscall(SYS_close, fd);
}

bool reconnect(void)
{
	if (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
		return true; /* another thread is reconnecting */
	int saved = errno;
	ino_t now;
	bool there = inode_of(process.socket, &now) && now == process.socketInode && !refused();
	struct pollfd p = {.fd = process.socket, .events = POLLIN};
	struct timespec at_once = {0};
	if (there && syscall(SYS_ppoll, &p, 1, &at_once, NULL, 0) > 0 && (p.revents & POLLHUP) != 0)
		come_back();
	errno = saved;
	atomic_flag_clear_explicit(&busy, memory_order_release);
	return there;
}
