/*
 * A domain's use of its accelerator: memory, time, processes. Each call requests it from the host; it contains no data
 * of other domains.
 */
#include "nvml.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "core/arena.h"
#include "core/device.h"
#include "core/ring.h"
#include "core/zz_wire.h"

struct usage_head {
	uint32_t version, processes;
	uint64_t memoryUsed, memoryQuota;
	int64_t now, busy;
};
_Static_assert(sizeof(struct usage_head) == 40 && sizeof(struct usage_process) == 24, "usage");

static bool read_usage(const uint8_t *bytes, uint64_t length, struct usage *u)
{
	struct usage_head head;
	if (length < sizeof head)
		return false;
	memcpy(&head, bytes, sizeof head);
	if (head.version != 1 || head.processes > PROCESSES_MOST || length != sizeof head + head.processes * sizeof *u->process)
		return false;
	u->memoryUsed = head.memoryUsed;
	u->memoryQuota = head.memoryQuota;
	u->now = head.now;
	u->busy = head.busy;
	u->processes = head.processes;
	memcpy(u->process, bytes + sizeof head, head.processes * sizeof *u->process);
	return true;
}

nvml usage_ask(struct usage *u)
{
	uint64_t offset, capacity = sizeof(struct usage_head) + sizeof u->process;
	if (process_check_alive() != CUDA_SUCCESS)
		return NVML_GPU_IS_LOST;
	if (arena_take(capacity, &offset) != CUDA_SUCCESS)
		return NVML_MEMORY;
	struct domain_usage_args args = {.arenaOffset = offset, .capacity = capacity};
	struct domain_usage_result answer;
	struct packet p = {.op = OP_DOMAIN_USAGE, .fixed = &args, .fixedBytes = sizeof args};
	CUresult r = ring_call(&p, &answer, sizeof answer);
	bool sound = r == CUDA_SUCCESS && answer.length <= capacity && read_usage(arena_at(offset), answer.length, u);
	arena_give(offset, capacity);
	return sound ? NVML_SUCCESS : r == CUDA_ERROR_NOT_SUPPORTED ? NVML_NOT_SUPPORTED : NVML_UNKNOWN;
}

/* --- memory --- */

static nvml ask(nvml_device handle, const void *out, struct usage *u)
{
	int d;
	nvml r = device_of(handle, out, &d);
	return r == NVML_SUCCESS ? usage_ask(u) : r;
}

static uint64_t left(const struct usage *u) { return u->memoryQuota - (u->memoryUsed < u->memoryQuota ? u->memoryUsed : u->memoryQuota); }

EXPORT nvml nvmlDeviceGetMemoryInfo(nvml_device handle, struct nvml_memory *out)
{
	struct usage u;
	nvml r = ask(handle, out, &u);
	if (r == NVML_SUCCESS)
		*out = (struct nvml_memory){.total = u.memoryQuota, .free = left(&u), .used = u.memoryUsed};
	return r;
}

EXPORT nvml nvmlDeviceGetMemoryInfo_v2(nvml_device handle, struct nvml_memory_v2 *out)
{
	struct usage u;
	nvml r = ask(handle, out, &u);
	if (r == NVML_SUCCESS && out->version != NVML_VERSIONED(*out, 2))
		r = NVML_VERSION_MISMATCH;
	if (r == NVML_SUCCESS)
		*out = (struct nvml_memory_v2){.version = out->version, .total = u.memoryQuota, .free = left(&u), .used = u.memoryUsed};
	return r;
}

/* --- time --- */

enum { SAMPLE_NS = 100000000 }; /* shortest time over which utilisation is measured */

/* The previous sample, and the shares of the time between it and the one before. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sample {
	int64_t now, busy;
	unsigned int percent;
	unsigned long long time; /* microseconds since 1970 */
	uint32_t processes;
	struct process_sample {
		uint32_t pid;
		unsigned int percent;
		int64_t busy;
	} process[PROCESSES_MOST];
} last;

/* The time of a process that has ended is not included; a kernel's time is counted when it ends. */
static unsigned int percent_of(int64_t busy, int64_t passed)
{
	if (busy <= 0 || passed <= 0)
		return 0;
	return busy >= passed ? 100 : (unsigned int)((double)busy * 100 / (double)passed + 0.5);
}

static int64_t busy_before(uint32_t pid)
{
	for (uint32_t i = 0; i < last.processes; i++)
		if (last.process[i].pid == pid)
			return last.process[i].busy;
	return 0;
}

static void sample(const struct usage *u, bool first)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	struct sample s = {
		.now = u->now, .busy = u->busy, .processes = u->processes,
		.percent = first ? 0 : percent_of(u->busy - last.busy, u->now - last.now),
		.time = (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000,
	};
	for (uint32_t i = 0; i < u->processes; i++) {
		const struct usage_process *p = &u->process[i];
		unsigned int percent = first ? 0 : percent_of(p->busy - busy_before(p->pid), u->now - last.now);
		s.process[i] = (struct process_sample){.pid = p->pid, .busy = p->busy, .percent = percent};
	}
	last = s;
}

void usage_begin(void)
{
	struct usage u;
	if (usage_ask(&u) != NVML_SUCCESS)
		return;
	pthread_mutex_lock(&lock);
	sample(&u, true);
	pthread_mutex_unlock(&lock);
}

/* Copies the latest sample, and takes a new one once it is old enough. */
static nvml look(nvml_device handle, const void *out, struct sample *s)
{
	struct usage u;
	nvml r = ask(handle, out, &u);
	if (r != NVML_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	if (u.now - last.now >= SAMPLE_NS)
		sample(&u, last.now == 0);
	*s = last;
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetUtilizationRates(nvml_device handle, struct nvml_utilization *out)
{
	struct sample s;
	nvml r = look(handle, out, &s);
	if (r == NVML_SUCCESS)
		*out = (struct nvml_utilization){.gpu = s.percent}; /* the utilisation of the memory bus is not measured */
	return r;
}

/* Reports whether there is room for all processes of a sample that is newer than since. */
static nvml fits(const struct sample *s, unsigned long long since, unsigned int *count, const void *out)
{
	unsigned int room = out ? *count : 0;
	if (s->processes == 0 || s->time <= since)
		return NVML_NOT_FOUND;
	*count = s->processes;
	return room < s->processes ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetProcessUtilization(nvml_device handle, struct nvml_process_use *out, unsigned int *n, unsigned long long since)
{
	struct sample s;
	nvml r = look(handle, n, &s);
	if (r == NVML_SUCCESS)
		r = fits(&s, since, n, out);
	for (uint32_t i = 0; r == NVML_SUCCESS && i < s.processes; i++)
		out[i] = (struct nvml_process_use){.pid = s.process[i].pid, .time = s.time, .sm = s.process[i].percent};
	return r;
}

EXPORT nvml nvmlDeviceGetProcessesUtilizationInfo(nvml_device handle, struct nvml_processes_use *out)
{
	struct sample s;
	nvml r = look(handle, out, &s);
	if (r == NVML_SUCCESS && out->version != NVML_VERSIONED(*out, 1))
		r = NVML_VERSION_MISMATCH;
	if (r == NVML_SUCCESS)
		r = fits(&s, out->since, &out->count, out->list);
	for (uint32_t i = 0; r == NVML_SUCCESS && i < s.processes; i++)
		out->list[i] = (struct nvml_process_use_v1){.pid = s.process[i].pid, .time = s.time, .sm = s.process[i].percent};
	return r;
}

/* --- processes --- */

/*
 * Sets *count to the number of processes and checks it against the array's size; a size of 0 only queries the number.
 */
static nvml count(const struct usage *u, unsigned int *count, const void *out)
{
	unsigned int room = *count;
	*count = u->processes;
	return room < u->processes ? NVML_INSUFFICIENT_SIZE : u->processes && !out ? NVML_INVALID_ARGUMENT : NVML_SUCCESS;
}

EXPORT nvml nvmlDeviceGetComputeRunningProcesses_v3(nvml_device handle, unsigned int *n, struct nvml_process *out)
{
	struct usage u;
	nvml r = ask(handle, n, &u);
	if (r == NVML_SUCCESS)
		r = count(&u, n, out);
	for (uint32_t i = 0; r == NVML_SUCCESS && i < u.processes; i++)
		out[i] = (struct nvml_process){u.process[i].pid, u.process[i].memory, (unsigned int)NO_INSTANCE, (unsigned int)NO_INSTANCE};
	return r;
}

EXPORT nvml nvmlDeviceGetComputeRunningProcesses_v2(nvml_device handle, unsigned int *n, struct nvml_process *out)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(handle, n, out);
}

EXPORT nvml nvmlDeviceGetComputeRunningProcesses(nvml_device handle, unsigned int *n, struct nvml_process_v1 *out)
{
	struct usage u;
	nvml r = ask(handle, n, &u);
	if (r == NVML_SUCCESS)
		r = count(&u, n, out);
	for (uint32_t i = 0; r == NVML_SUCCESS && i < u.processes; i++)
		out[i] = (struct nvml_process_v1){u.process[i].pid, u.process[i].memory};
	return r;
}

EXPORT nvml nvmlDeviceGetRunningProcessDetailList(nvml_device handle, struct nvml_process_list *out)
{
	struct usage u;
	nvml r = ask(handle, out, &u);
	if (r == NVML_SUCCESS && out->version != NVML_VERSIONED(*out, 1))
		r = NVML_VERSION_MISMATCH;
	if (r == NVML_SUCCESS && out->mode > MODE_MPS)
		r = NVML_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	if (out->mode != MODE_COMPUTE)
		u.processes = 0;
	r = count(&u, &out->count, out->list);
	for (uint32_t i = 0; r == NVML_SUCCESS && i < u.processes; i++)
		out->list[i] = (struct nvml_process_detail){
			u.process[i].pid, u.process[i].memory, (unsigned int)NO_INSTANCE, (unsigned int)NO_INSTANCE, 0};
	return r;
}

/* Programs here have no graphics processes. */
static nvml none(nvml_device handle, unsigned int *n)
{
	int d;
	nvml r = device_of(handle, n, &d);
	if (r == NVML_SUCCESS)
		*n = 0;
	return r;
}

#define NONE(name) \
	EXPORT nvml name(nvml_device handle, unsigned int *n, void *out) \
	{ \
		(void)out; \
		return none(handle, n); \
	}
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
