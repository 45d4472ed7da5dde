#include "image/layout.h"

#include <stdlib.h>
#include <string.h>

struct head {
	uint32_t version, functionCount, globalCount, stringBytes;
};

struct param_head {
	uint32_t paramTotal, pad;
};

/* Consumes count records of size bytes from the remaining input; NULL if it is too short. */
static const void *take(const uint8_t **at, uint64_t *left, uint64_t count, uint64_t size)
{
	const uint8_t *records = *at;
	if (count > *left / size)
		return NULL;
	*at += count * size;
	*left -= count * size;
	return records;
}

static bool check_function(const struct layout *l, const struct layout_function *f, uint32_t stringBytes)
{
	if (f->name >= stringBytes || f->paramFirst > l->paramCount || f->paramCount > l->paramCount - f->paramFirst)
		return false;
	for (uint32_t i = 0; i < f->paramCount; i++) {
		const struct layout_param *p = &l->params[f->paramFirst + i];
		if (p->offset > f->paramBytes || p->size > f->paramBytes - p->offset)
			return false;
	}
	return true;
}

static bool check(const struct layout *l, uint32_t stringBytes)
{
	if (stringBytes > 0 && l->strings[stringBytes - 1] != 0)
		return false;
	for (uint32_t i = 0; i < l->functionCount; i++)
		if (!check_function(l, &l->functions[i], stringBytes))
			return false;
	for (uint32_t i = 0; i < l->globalCount; i++)
		if (l->globals[i].name >= stringBytes)
			return false;
	return true;
}

static uint32_t hash_of(const char *name)
{
	uint32_t h = 2166136261u;
	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return h;
}

static bool index_names(struct layout *l)
{
	l->hashSize = 16;
	while (l->hashSize < 2 * l->functionCount)
		l->hashSize *= 2;
	l->hash = calloc(l->hashSize, sizeof *l->hash);
	if (!l->hash)
		return false;
	for (uint32_t i = 0; i < l->functionCount; i++) {
		uint32_t at = hash_of(l->strings + l->functions[i].name) & (l->hashSize - 1);
		while (l->hash[at])
			at = (at + 1) & (l->hashSize - 1);
		l->hash[at] = i + 1;
	}
	return true;
}

static bool parse(struct layout *l, const uint8_t *at, uint64_t left)
{
	const struct head *h = take(&at, &left, 1, sizeof *h);
	if (!h || h->version != 1 || h->functionCount > 1 << 24)
		return false;
	l->functionCount = h->functionCount;
	l->globalCount = h->globalCount;
	l->functions = take(&at, &left, h->functionCount, sizeof *l->functions);
	const struct param_head *ph = take(&at, &left, 1, sizeof *ph);
	if (!l->functions || !ph)
		return false;
	l->paramCount = ph->paramTotal;
	l->params = take(&at, &left, l->paramCount, sizeof *l->params);
	l->globals = l->params ? take(&at, &left, l->globalCount, sizeof *l->globals) : NULL;
	l->strings = l->globals ? take(&at, &left, h->stringBytes, 1) : NULL;
	uint32_t padding = -h->stringBytes & 3;
	if (l->strings && left > padding) {
		at += padding;
		left -= padding;
		l->limits = take(&at, &left, h->functionCount, sizeof *l->limits);
		if (!l->limits)
			return false;
	}
	return l->strings && check(l, h->stringBytes) && index_names(l);
}

bool layout_parse(const uint8_t *bytes, uint64_t length, struct layout *l)
{
	*l = (struct layout){.memory = malloc(length + 1)};
	if (!l->memory)
		return false;
	memcpy(l->memory, bytes, length);
	if (parse(l, l->memory, length))
		return true;
	layout_free(l);
	return false;
}

void layout_free(struct layout *l)
{
	free(l->memory);
	free(l->hash);
	*l = (struct layout){0};
}

int64_t layout_find_function(const struct layout *l, const char *name)
{
	for (uint32_t at = hash_of(name) & (l->hashSize - 1); l->hash[at]; at = (at + 1) & (l->hashSize - 1)) {
		uint32_t i = l->hash[at] - 1;
		if (strcmp(l->strings + l->functions[i].name, name) == 0)
			return i;
	}
	return -1;
}

int64_t layout_find_global(const struct layout *l, enum layout_kind kind, const char *name)
{
	for (uint32_t i = 0; i < l->globalCount; i++)
		if (l->globals[i].kind == kind && strcmp(l->strings + l->globals[i].name, name) == 0)
			return i;
	return -1;
}
