#include "api/coredump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/zz_impl.h"
#include "object/context.h"

enum { NAME_ROOM = 1024 }; /* of a file's name, with its NUL */
#define GENERATION_KNOWN (CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT | CU_COREDUMP_GZIP_COMPRESS)

struct settings {
	bool onException, host, lightweight, user;
	int generation; /* CUCoredumpGenerationFlags */
	char file[NAME_ROOM], pipe[NAME_ROOM];
};

struct own {
	uint64_t serial; /* of the context */
	struct settings settings;
	struct own *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct settings global;
static bool known; /* global is initialised */
static struct own *all;

static bool from_environment(const char *name, bool otherwise)
{
	const char *value = getenv(name);
	return value && *value ? strcmp(value, "0") != 0 : otherwise;
}

static void name_of(char *name, const char *variable, const char *prefix)
{
	const char *given = getenv(variable);
	char host[256] = "";
	if (given && *given) {
		snprintf(name, NAME_ROOM, "%s", given);
		return;
	}
	gethostname(host, sizeof host - 1);
	snprintf(name, NAME_ROOM, "%s.cuda.%s.%ld", prefix, host, (long)getpid());
}

/* Returns the global settings; requires the lock. Defaults come from the environment, else from CUDA. */
static struct settings *global_settings(void)
{
	if (!known) {
		global.onException = from_environment("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", false);
		global.host = from_environment("CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION", true);
		global.lightweight = from_environment("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", false);
		global.user = from_environment("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", false);
		name_of(global.file, "CUDA_COREDUMP_FILE", "core");
		name_of(global.pipe, "CUDA_COREDUMP_PIPE", "corepipe");
		known = true;
	}
	return &global;
}

void coredump_context_begins(uint64_t serial, uint32_t flags)
{
	struct own *o = malloc(sizeof *o);
	if (!o)
		return; /* the context then has no settings */
	pthread_mutex_lock(&lock);
	*o = (struct own){.serial = serial, .settings = *global_settings(), .next = all};
	if (flags & (CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE))
		o->settings.onException = true;
	all = o;
	pthread_mutex_unlock(&lock);
}

void coredump_context_gone(uint64_t serial)
{
	pthread_mutex_lock(&lock);
	for (struct own **at = &all; *at; at = &(*at)->next)
		if ((*at)->serial == serial) {
			struct own *gone = *at;
			*at = gone->next;
			free(gone);
			break;
		}
	pthread_mutex_unlock(&lock);
}

/* Returns a context's settings, NULL if it was destroyed meanwhile; requires the lock. */
static struct settings *settings_of(const struct context *c)
{
	struct own *o = all;
	while (o && o->serial != c->serial)
		o = o->next;
	return o ? &o->settings : NULL;
}

static bool *switch_of(struct settings *s, CUcoredumpSettings what)
{
	switch ((unsigned)what) {
	case CU_COREDUMP_ENABLE_ON_EXCEPTION:
		return &s->onException;
	case CU_COREDUMP_TRIGGER_HOST:
		return &s->host;
	case CU_COREDUMP_LIGHTWEIGHT:
		return &s->lightweight;
	case CU_COREDUMP_ENABLE_USER_TRIGGER:
		return &s->user;
	default:
		return NULL;
	}
}

static char *name_in(struct settings *s, CUcoredumpSettings what)
{
	return what == CU_COREDUMP_FILE ? s->file : what == CU_COREDUMP_PIPE ? s->pipe : NULL;
}

static size_t room_for(struct settings *s, CUcoredumpSettings what)
{
	if (switch_of(s, what))
		return sizeof(bool);
	if (name_in(s, what))
		return NAME_ROOM;
	return what == CU_COREDUMP_GENERATION_FLAGS ? sizeof s->generation : 0;
}

/* Reads a setting; with value NULL, returns the buffer size for it. A buffer for a name only has to fit that name. */
static CUresult get(struct settings *s, CUcoredumpSettings what, void *value, size_t *size)
{
	const char *name = name_in(s, what);
	const bool *flag = switch_of(s, what);
	size_t needed = name ? strlen(name) + 1 : room_for(s, what);
	if (needed == 0 || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!value) {
		*size = room_for(s, what);
		return CUDA_SUCCESS;
	}
	if (*size < needed)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(value, name ? (const void *)name : flag ? (const void *)flag : &s->generation, needed);
	return CUDA_SUCCESS;
}

static CUresult set_name(char *name, const char *value, size_t size)
{
	size_t length = strnlen(value, size);
	if (length == 0 || length >= NAME_ROOM)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(name, value, length);
	name[length] = 0;
	return CUDA_SUCCESS;
}

static CUresult set(struct settings *s, CUcoredumpSettings what, const void *value, const size_t *size)
{
	char *name = name_in(s, what);
	bool *flag = switch_of(s, what);
	int generation;
	uint8_t on;
	if (!value || !size || room_for(s, what) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (name)
		return set_name(name, value, *size);
	if (*size < room_for(s, what))
		return CUDA_ERROR_INVALID_VALUE;
	if (flag) {
		memcpy(&on, value, sizeof on);
		*flag = on != 0;
		return CUDA_SUCCESS;
	}
	memcpy(&generation, value, sizeof generation);
	if (generation & ~(int)GENERATION_KNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	s->generation = generation;
	return CUDA_SUCCESS;
}

/* The pipe belongs to the process. */
static bool of_process(CUcoredumpSettings what) { return what == CU_COREDUMP_ENABLE_USER_TRIGGER || what == CU_COREDUMP_PIPE; }

CUresult pg_cuCoredumpGetAttribute(CUcoredumpSettings what, void *value, size_t *size)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	struct settings *s = of_process(what) ? global_settings() : settings_of(c);
	r = s ? get(s, what, value, size) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pg_cuCoredumpGetAttributeGlobal(CUcoredumpSettings what, void *value, size_t *size)
{
	pthread_mutex_lock(&lock);
	CUresult r = get(global_settings(), what, value, size);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pg_cuCoredumpSetAttribute(CUcoredumpSettings what, void *value, size_t *size)
{
	struct context *c;
	CUresult r = context_current(&c);
	if (r != CUDA_SUCCESS)
		return r;
	if (of_process(what))
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&lock);
	struct settings *s = settings_of(c);
	r = s ? set(s, what, value, size) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult pg_cuCoredumpSetAttributeGlobal(CUcoredumpSettings what, void *value, size_t *size)
{
	pthread_mutex_lock(&lock);
	struct settings *s = global_settings();
	/* The pipe's name is fixed once a reader may wait for the pipe. */
	CUresult r = what == CU_COREDUMP_PIPE && s->user ? CUDA_ERROR_NOT_PERMITTED : set(s, what, value, size);
	pthread_mutex_unlock(&lock);
	return r;
}
