/*
 * The rendezvous of a process guest: Hello and Welcome with the daemon, then Map and Mapped with the worker, whose
 * socket carries only doorbell messages afterwards.
 */
#define _GNU_SOURCE
#include "core/connect.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "core/arena.h"
#include "core/device.h"
#include "core/futex.h"
#include "core/kernel_check.h"
#include "core/lifecycle.h"
#include "core/profile.h"
#include "core/reconnect.h"
#include "core/release.h"
#include "core/ring.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* How long to wait for a restarting daemon, and for an answer. */
#define DAEMON_PATIENCE_NS (5 * INT64_C(1000000000))
#define ANSWER_PATIENCE_S 10

struct rendezvous {
	struct welcome welcome;
	int segment, worker; /* descriptors, -1: none */
	bool cutOff;         /* the peer closed the connection without an answer */
};

/*
 * Timeouts count time during which this machine runs. Its clock may go on while it is paused, as under Xen, so a single
 * wait counts for at most a moment.
 */
#define MOMENT_NS INT64_C(1000000000)

struct patience {
	int64_t left, at;
};

static struct patience patience_for(int64_t ns)
{
	return (struct patience){.left = ns, .at = clock_ns(CLOCK_MONOTONIC)};
}

static bool has_patience(struct patience *p)
{
	int64_t now = clock_ns(CLOCK_MONOTONIC), passed = now - p->at;
	p->at = now;
	p->left -= passed < MOMENT_NS ? passed : MOMENT_NS;
	return p->left > 0;
}

/* Reports whether the result of a socket call means that the peer has closed the connection. */
static bool is_cut_off(ssize_t n) { return n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE)); }

static bool directory_exists(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!slash || slash == path)
		return true;
	char directory[sizeof(((struct sockaddr_un *)0)->sun_path)] = "";
	memcpy(directory, path, (size_t)(slash - path));
	struct stat s;
	return stat(directory, &s) == 0;
}

static bool is_other_file(const char *path)
{
	struct stat s;
	return stat(path, &s) == 0 && !S_ISSOCK(s.st_mode);
}

/* Logs once that PEGASUS_SOCKET is not the path of a socket. */
static void log_no_socket(const char *path)
{
	static atomic_flag logged = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&logged))
		log_at(LOG_ERROR, "PEGASUS_SOCKET=%.128s: want the path of a domain's socket, of at most %zu bytes, as pegasus run sets it", path,
			sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
}

/* Logs the reason why there is no connection. A permission error does not show whether a daemon runs. */
static void log_unreachable(const char *path, int why)
{
	if (why == EACCES || why == EPERM)
		log_at(LOG_ERROR, "%s: %s: socket_owner, socket_group and socket_mode of the domain, and the directories above, admit users", path, strerror(why));
	else if (why == ENOTDIR || is_other_file(path))
		log_no_socket(path);
	else
		log_at(LOG_ERROR, "no Pegasus daemon at %s: %s", path, strerror(why));
}

/* Connects to the daemon. If the connection is refused or the socket is missing, the daemon may be restarting. */
static int connect_daemon(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address.sun_path) {
		log_no_socket(path);
		return -1;
	}
	strcpy(address.sun_path, path);
	struct patience patience = patience_for(DAEMON_PATIENCE_NS);
	for (;;) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (fd < 0) {
			log_at(LOG_ERROR, "no socket: %s", strerror(errno));
			return -1;
		}
		if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
			return fd;
		int why = errno;
		close(fd);
		bool away = (why == ECONNREFUSED && !is_other_file(path)) || why == EAGAIN || why == EINTR || (why == ENOENT && directory_exists(path));
		if (!away || !has_patience(&patience)) {
			log_unreachable(path, why);
			return -1;
		}
		struct timespec pause = {.tv_nsec = 20000000};
		nanosleep(&pause, NULL);
	}
}

static void set_patience(int fd)
{
	struct timeval limit = {.tv_sec = ANSWER_PATIENCE_S}, moment = {.tv_sec = MOMENT_NS / 1000000000};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Waits for an answer, in steps of a moment. */
static ssize_t receive(int fd, struct msghdr *m, int flags)
{
	ssize_t n;
	int moments = ANSWER_PATIENCE_S;
	do
		n = recvmsg(fd, m, flags);
	while (n < 0 && (errno == EINTR || (errno == EAGAIN && --moments > 0)));
	return n;
}

static bool send_message(int fd, const void *message, size_t length, bool *cutOff)
{
	ssize_t n;
	do
		n = send(fd, message, length, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	*cutOff = is_cut_off(n);
	return n == (ssize_t)length;
}

/*
 * Moves a descriptor above standard input, output and error: a program that runs with these closed may write to their
 * numbers, and that data must not reach the socket.
 */
static void keep_clear_of_standard(int *fd)
{
	if (*fd < 0 || *fd > STDERR_FILENO)
		return;
	int higher = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (higher < 0)
		return;
	close(*fd);
	*fd = higher;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Keeps the two file descriptors of a valid Welcome, and closes all others. */
static void take_descriptors(struct msghdr *m, struct rendezvous *r)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (r->segment < 0)
				r->segment = fd;
			else if (r->worker < 0)
				r->worker = fd;
			else
				close(fd);
		}
	}
}

static bool receive_welcome(int fd, struct rendezvous *r)
{
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = &r->welcome, .iov_len = sizeof r->welcome};
	struct msghdr m = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes,
	};
	ssize_t n = receive(fd, &m, MSG_CMSG_CLOEXEC);
	r->cutOff = is_cut_off(n);
	if (n >= 0)
		take_descriptors(&m, r);
	if (n < (ssize_t)WELCOME_BYTES || r->welcome.magic != WELCOME_MAGIC)
		return false;
	bool placed = (r->welcome.features & HELLO_PLACED) != 0;
	return n == (ssize_t)(placed ? sizeof r->welcome : WELCOME_BYTES);
}

static CUresult greet(int fd, uint64_t features, struct rendezvous *r)
{
	struct hello hello = {.magic = HELLO_MAGIC, .version = SEGMENT_VERSION, .features = features | FEATURE_BELL | HELLO_PLACED};
	set_patience(fd);
	if (!send_message(fd, &hello, sizeof hello, &r->cutOff) || !receive_welcome(fd, r)) {
		log_at(r->cutOff ? LOG_INFO : LOG_ERROR, "connect to the Pegasus daemon: no answer, or a malformed one");
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	r->welcome.message[sizeof r->welcome.message - 1] = 0;
	if (r->welcome.result != 0) {
		log_at(LOG_ERROR, "the Pegasus daemon refused: %s", r->welcome.message);
		return process_result((uint32_t)r->welcome.result);
	}
	if (r->welcome.version != SEGMENT_VERSION) {
		log_at(LOG_ERROR, "connect to the Pegasus daemon: it has protocol version %u, this library %d; install the libcuda.so.1 of the daemon's release", r->welcome.version, SEGMENT_VERSION);
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	if (r->segment < 0 || r->worker < 0) { /* the kernel drops descriptors beyond the limit */
		log_at(LOG_ERROR, "connect to the Pegasus daemon: its file descriptors did not arrive; raise the limit of open files (ulimit -n)");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	keep_clear_of_standard(&r->worker);
	return CUDA_SUCCESS;
}

static bool power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

static bool lies_within(uint64_t offset, uint64_t count, uint64_t size, uint64_t total)
{
	return offset % 64 == 0 && offset >= SEGMENT_HEADER_BYTES && offset <= total && count <= (total - offset) / size;
}

/* Reads the layout from the header, once, and rejects one that does not fit the mapping. */
static bool take_layout(struct segment_header *h)
{
	struct segment_header copy;
	memcpy(&copy, h, offsetof(struct segment_header, processPoison));
	uint64_t total = process.viewBytes;
	if (copy.magic != SEGMENT_MAGIC || copy.version != SEGMENT_VERSION || copy.segmentBytes > total)
		return false;
	if (!power_of_two(copy.ringSlots) || copy.ringSlots < 2 * PACKET_SLOTS || copy.replySlots == 0 ||
		copy.replySlots > 65536 || !power_of_two(copy.eventWords) || copy.releaseWords == 0)
		return false;
	if (!lies_within(copy.ringOffset, copy.ringSlots, SLOT_BYTES, total) ||
		!lies_within(copy.replyOffset, copy.replySlots, REPLY_BYTES, total) ||
		!lies_within(copy.eventOffset, copy.eventWords, sizeof(struct event_word), total) ||
		!lies_within(copy.releaseOffset, copy.releaseWords, sizeof(uint32_t), total) ||
		!lies_within(copy.arenaOffset, copy.arenaBytes, 1, total) || copy.arenaOffset % 4096 != 0)
		return false;
	uint8_t *base = process.view;
	process.header = h;
	process.ring = (struct ring_slot *)(base + copy.ringOffset);
	process.ringSlots = copy.ringSlots;
	process.replies = (struct reply_slot *)(base + copy.replyOffset);
	process.replySlots = copy.replySlots;
	process.events = (struct event_word *)(base + copy.eventOffset);
	process.eventWords = copy.eventWords;
	process.releases = (_Atomic uint32_t *)(base + copy.releaseOffset);
	process.releaseWords = copy.releaseWords;
	process.arena = base + copy.arenaOffset;
	process.arenaBytes = copy.arenaBytes;
	process.apart = (copy.features & FEATURE_APART) != 0;
	process.bell = (copy.features & FEATURE_BELL) != 0;
	return true;
}

static CUresult map_segment(const struct rendezvous *r)
{
	struct stat s;
	uint64_t bytes = r->welcome.segmentBytes, offset = r->welcome.segmentOffset;
	if (fstat(r->segment, &s) != 0 || bytes < SEGMENT_HEADER_BYTES)
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	/* Xen's device reports no size and can be mapped as far as it has pages. */
	if (S_ISREG(s.st_mode) && ((uint64_t)s.st_size < bytes || offset > (uint64_t)s.st_size - bytes))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	void *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, r->segment, (off_t)offset);
	if (view == MAP_FAILED) {
		log_at(LOG_ERROR, "map the call buffer of %llu bytes: %s; check ulimit -v and -l",
			(unsigned long long)bytes, strerror(errno));
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	madvise(view, bytes, MADV_DONTFORK);
	process.view = view;
	process.viewBytes = bytes;
	if (!take_layout(view)) {
		log_at(LOG_ERROR, "map the call buffer: unknown layout; install the libcuda.so.1 of the daemon's release");
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	return CUDA_SUCCESS;
}

/* Maps length bytes exactly at base, or not at all. */
static bool map_exactly(uint64_t base, uint64_t length, int protection, int flags, int fd, uint64_t offset)
{
	if (base == 0 || base % 4096 != 0 || length == 0 || base + length < base)
		return false;
	void *want = (void *)(uintptr_t)base;
	void *got = mmap(want, length, protection, flags | MAP_FIXED_NOREPLACE, fd, (off_t)offset);
	if (got == MAP_FAILED)
		return false;
	if (got != want) { /* the kernel treats the flag as a hint */
		munmap(got, length);
		return false;
	}
	madvise(got, length, MADV_DONTFORK);
	return true;
}

static uint32_t map_arena(const struct rendezvous *r, uint32_t from)
{
	uint64_t offset = r->welcome.segmentOffset + (uint64_t)(process.arena - (uint8_t *)process.view);
	for (uint32_t i = from; i < WINDOW_BASES; i++)
		if (map_exactly(r->welcome.arenaBases[i], process.arenaBytes, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_NORESERVE, r->segment, offset))
			return i;
	return NO_WINDOW;
}

static uint32_t map_device(const struct rendezvous *r, uint32_t from)
{
	for (uint32_t i = from; i < WINDOW_BASES; i++)
		if (map_exactly(r->welcome.deviceBases[i], r->welcome.deviceBytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))
			return i;
	return NO_WINDOW;
}

static void unmap_window(const uint64_t *bases, uint32_t index, uint64_t length)
{
	if (index != NO_WINDOW)
		munmap((void *)(uintptr_t)bases[index], length);
}

static bool ask_worker(int fd, struct map_request *ask, struct map_reply *answer, bool *cutOff)
{
	if (!send_message(fd, ask, sizeof *ask, cutOff))
		return false;
	struct iovec part = {.iov_base = answer, .iov_len = sizeof *answer};
	ssize_t n = receive(fd, &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1}, 0);
	*cutOff = is_cut_off(n);
	return n == (ssize_t)sizeof *answer && answer->magic == MAPPED_MAGIC;
}

/*
 * Reports whether to connect again after the socket has hung up. A worker that ends poisons the process first; without
 * that, the machine's agent has ended. CUDA_ERROR_SYSTEM_NOT_READY means that the worker timed out, since the machine
 * was paused.
 */
static bool may_come_again(void)
{
	uint32_t poison = atomic_load_explicit(&process.header->processPoison, memory_order_acquire);
	return poison == 0 || poison == CUDA_ERROR_SYSTEM_NOT_READY;
}

/* Agrees with the worker on where arena and device memory lie; each side tries the same candidates. */
static CUresult agree_on_windows(struct rendezvous *r)
{
	const struct welcome *w = &r->welcome;
	struct map_request ask = {.magic = MAP_MAGIC, .arenaIndex = map_arena(r, 0), .deviceIndex = map_device(r, 0)};
	set_patience(r->worker);
	for (;;) {
		struct map_reply answer = {0};
		bool heard = ask_worker(r->worker, &ask, &answer, &r->cutOff);
		bool arenaOk = heard && (answer.arenaOk || ask.arenaIndex == NO_WINDOW);
		bool deviceOk = heard && (answer.deviceOk || ask.deviceIndex == NO_WINDOW);
		if (heard && answer.result == 0 && arenaOk && deviceOk)
			break;
		if (!arenaOk)
			unmap_window(w->arenaBases, ask.arenaIndex, process.arenaBytes);
		if (!deviceOk)
			unmap_window(w->deviceBases, ask.deviceIndex, w->deviceBytes);
		if (!heard || answer.result != 0) {
			if (arenaOk)
				unmap_window(w->arenaBases, ask.arenaIndex, process.arenaBytes);
			if (deviceOk)
				unmap_window(w->deviceBases, ask.deviceIndex, w->deviceBytes);
			r->cutOff &= process.apart && may_come_again();
			log_at(r->cutOff ? LOG_INFO : LOG_ERROR, "map memory: the worker refused, or ended");
			return heard && answer.result != 0 ? process_result((uint32_t)answer.result) : CUDA_ERROR_SYSTEM_NOT_READY;
		}
		if (!arenaOk)
			ask.arenaIndex = map_arena(r, ask.arenaIndex + 1);
		if (!deviceOk)
			ask.deviceIndex = map_device(r, ask.deviceIndex + 1);
	}
	process.arenaShared = ask.arenaIndex != NO_WINDOW;
	if (process.arenaShared)
		process.arena = (uint8_t *)(uintptr_t)w->arenaBases[ask.arenaIndex];
	process.deviceBytes = ask.deviceIndex == NO_WINDOW ? 0 : w->deviceBytes;
	process.deviceBase = ask.deviceIndex == NO_WINDOW ? 0 : w->deviceBases[ask.deviceIndex];
	log_at(LOG_INFO, "arena at %p%s, device window at 0x%llx", (void *)process.arena,
		process.arenaShared ? "" : " (not shared)", (unsigned long long)process.deviceBase);
	return CUDA_SUCCESS;
}

static CUresult attach(struct rendezvous *r)
{
	CUresult result = map_segment(r);
	if (result == CUDA_SUCCESS)
		result = agree_on_windows(r);
	return result;
}

/* Undoes a failed open_link. */
static void detach(void)
{
	if (process.arenaShared)
		munmap(process.arena, process.arenaBytes);
	if (process.deviceBytes)
		munmap((void *)(uintptr_t)process.deviceBase, process.deviceBytes);
	if (process.view)
		munmap(process.view, process.viewBytes);
	close_fd(&process.socket);
	process = (struct process){.socket = -1};
}

/* The first calls, made before any other thread can make one. */
static CUresult first_calls(void)
{
	CUresult r = call_reset();
	if (r == CUDA_SUCCESS)
		r = arena_reset();
	if (r != CUDA_SUCCESS)
		return r;
	atomic_store_explicit(&process.state, PROCESS_READY, memory_order_release);
	r = device_snapshot();
	if (r != CUDA_SUCCESS) {
		atomic_store_explicit(&process.state, PROCESS_NEW, memory_order_release);
		return r;
	}
	profile_begin();
	check_begin();
	return CUDA_SUCCESS;
}

/* Socket of a VM's agent, the default without PEGASUS_SOCKET. */
#define AGENT_SOCKET "/run/pegasus/guest.sock"

static const char *find_socket(void)
{
	const char *path = getenv("PEGASUS_SOCKET");
	if (path && *path)
		return path;
	struct stat s;
	return stat(AGENT_SOCKET, &s) == 0 ? AGENT_SOCKET : NULL;
}

/* One attempt. cutOff: the daemon, or the machine's agent, ended during the rendezvous. */
static CUresult come(const char *path, uint64_t features, bool *cutOff)
{
	int daemon = connect_daemon(path);
	if (daemon < 0)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	struct rendezvous r = {.segment = -1, .worker = -1};
	CUresult result = greet(daemon, features, &r);
	close(daemon);
	if (result == CUDA_SUCCESS)
		result = attach(&r);
	*cutOff = r.cutOff;
	if (result == CUDA_SUCCESS) {
		process_take_socket(r.worker);
		r.worker = -1;
		reconnect_prepare(path);
		result = first_calls();
	}
	close_fd(&r.segment);
	close_fd(&r.worker);
	if (result != CUDA_SUCCESS)
		detach();
	return result;
}

/* Connects and fills process; on failure it releases everything. */
static CUresult open_link(void)
{
	const char *path = find_socket();
	release_cuda(0); /* validates its variables also for programs that never query the version */
	if (!path) {
		log_at(LOG_INFO, "PEGASUS_SOCKET is not set, and there is no " AGENT_SOCKET ": no device");
		return CUDA_ERROR_NO_DEVICE;
	}
	struct patience patience = patience_for(DAEMON_PATIENCE_NS);
	bool cutOff = false;
	CUresult result = come(path, 0, &cutOff);
	while (cutOff && has_patience(&patience)) {
		struct timespec pause = {.tv_nsec = 20000000};
		nanosleep(&pause, NULL);
		cutOff = false;
		result = come(path, HELLO_AFRESH, &cutOff);
	}
	if (cutOff)
		log_at(LOG_ERROR, "connect to the Pegasus daemon: each attempt was cut off");
	return result;
}

/* --- start of the process, and forks --- */

static pthread_mutex_t startLock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Many threads may call cuInit any number of times; only the first call connects. The conversation with the daemon has
 * many cancellation points, but cancellation is disabled while the lock is held.
 */
CUresult process_start(void)
{
	if (LIKELY(atomic_load_explicit(&process.state, memory_order_acquire) == PROCESS_READY))
		return process_enter();
	int cancelable;
	CUresult r;
	lifecycle_begin();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	pthread_mutex_lock(&startLock);
	if (atomic_load_explicit(&process.state, memory_order_acquire) == PROCESS_NEW) {
		r = open_link();
		if (r == CUDA_SUCCESS)
			atomic_store_explicit(&process.state, PROCESS_READY, memory_order_release);
	} else {
		r = process_enter();
	}
	pthread_mutex_unlock(&startLock);
	pthread_setcancelstate(cancelable, NULL);
	return r;
}

void connect_before_fork(void) { pthread_mutex_lock(&startLock); }

void connect_after_fork(bool child)
{
	if (!child) {
		pthread_mutex_unlock(&startLock);
		return;
	}
	pthread_mutex_init(&startLock, NULL);
	process_forked();
}
