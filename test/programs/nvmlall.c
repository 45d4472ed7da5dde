/*
 * Calls each NVML symbol that a line of the input names: "NAME BODY KIND...", where BODY is refused, manual or out
 * (returns constants), and each KIND describes a parameter: device, pointer, number, or out:VALUE. Errors go to stdout.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { PARAMETERS_MOST = 12, BUFFER = 1 << 16, RED = 0x5a };
enum { SUCCESS, UNINITIALIZED, INVALID, REFUSED };
enum when { BEFORE, DURING, AFTER };

struct parameter {
	char kind;
	unsigned value;
};

static struct function {
	char name[80], body[16];
	struct parameter parameter[PARAMETERS_MOST];
	int parameters, devices;
	int (*call)(intptr_t, ...);
} functions[600];

static int count, wrong;
static intptr_t gpu;
static void *library;

static int call(const struct function *f, const intptr_t *a)
{
	return f->call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

static void expect(const struct function *f, const char *how, int got, int want)
{
	if (got != want && ++wrong)
		printf("%s with %s: %d, want %d\n", f->name, how, got, want);
}

static void read_functions(void)
{
	char line[512];
	while (fgets(line, sizeof line, stdin)) {
		struct function *f = &functions[count];
		char *rest = line, *word;
		CLAIM(count < (int)(sizeof functions / sizeof *functions));
		snprintf(f->name, sizeof f->name, "%s", strsep(&rest, " \n"));
		snprintf(f->body, sizeof f->body, "%s", strsep(&rest, " \n"));
		while ((word = strsep(&rest, " \n")) && *word) {
			CLAIM(f->parameters < PARAMETERS_MOST);
			struct parameter *p = &f->parameter[f->parameters++];
			p->kind = *word;
			f->devices += p->kind == 'd';
			if (p->kind == 'o')
				p->value = (unsigned)strtoul(word + strlen("out:"), NULL, 10);
		}
		f->call = (int (*)(intptr_t, ...))dlsym(library, f->name);
		if (f->call)
			count++;
		else if (++wrong)
			printf("no %s\n", f->name);
	}
}

/* All parameters null; then with a valid device. */
static void nulls(const struct function *f, enum when when)
{
	intptr_t a[PARAMETERS_MOST] = {0};
	int manual = !strcmp(f->body, "manual"), out = !strcmp(f->body, "out"), table = !strcmp(f->name, "nvmlInternalGetExportTable");
	int refused = manual || out ? INVALID : REFUSED;
	if (when != DURING) {
		expect(f, "nulls while there is no NVML", call(f, a), table ? INVALID : UNINITIALIZED);
		return;
	}
	expect(f, "nulls", call(f, a), f->devices ? INVALID : refused);
	for (int i = 0; i < f->parameters; i++)
		a[i] = f->parameter[i].kind == 'd' ? gpu : 0;
	if (f->devices)
		expect(f, "a device and nulls", call(f, a), refused);
}

/* Maximal numbers, and zeroed outputs: nothing is written beyond the caller's buffer. */
static void extremes(const struct function *f, intptr_t number)
{
	static uint8_t memory[PARAMETERS_MOST][BUFFER];
	intptr_t a[PARAMETERS_MOST] = {0};
	for (int i = 0; i < f->parameters; i++) {
		char kind = f->parameter[i].kind;
		memset(memory[i], RED, BUFFER);
		memset(memory[i], 0, 4096);
		a[i] = kind == 'd' ? gpu : kind == 'n' ? number : (intptr_t)memory[i];
		if (kind == 'o')
			memset(memory[i], RED, BUFFER);
	}
	int r = call(f, a);
	if (!strcmp(f->body, "refused"))
		expect(f, "extremes", r, REFUSED);
	else if (!strcmp(f->body, "out"))
		expect(f, "extremes", r, SUCCESS);
	else if (r != SUCCESS && r != INVALID && r != REFUSED && r != 6 && r != 7 && r != 13 && r != 25)
		expect(f, "extremes", r, SUCCESS);
	for (int i = 0; i < f->parameters; i++) {
		unsigned value;
		memcpy(&value, memory[i], sizeof value);
		if (f->parameter[i].kind == 'o' && (value != f->parameter[i].value || memory[i][sizeof value] != RED) && ++wrong)
			printf("%s answers %u, want %u\n", f->name, value, f->parameter[i].value);
		for (int at = 4096; f->parameter[i].kind == 'p' && at < BUFFER; at++)
			if (memory[i][at] != RED && ++wrong) {
				printf("%s writes at %d of output %d\n", f->name, at, i);
				break;
			}
	}
	static const intptr_t none[] = {0, 2, 99, -1};
	for (int i = 0; i < f->parameters; i++)
		for (int k = 0; f->parameter[i].kind == 'd' && i == 0 && k < 4; k++) {
			a[i] = none[k];
			expect(f, "no device", call(f, a), INVALID);
		}
}

static int named(const char *name, intptr_t a, intptr_t b)
{
	int (*f)(intptr_t, intptr_t) = (int (*)(intptr_t, intptr_t))dlsym(library, name);
	return f ? f(a, b) : -1;
}

int main(void)
{
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	CLAIM(library);
	read_functions();
	for (enum when when = BEFORE; when <= AFTER; when++) {
		if (when == DURING)
			CLAIM(named("nvmlInit_v2", 0, 0) == 0 && named("nvmlDeviceGetHandleByIndex_v2", 0, (intptr_t)&gpu) == 0);
		for (int i = 0; i < count; i++) {
			nulls(&functions[i], when);
			if (when == DURING) {
				extremes(&functions[i], 0);
				extremes(&functions[i], UINT32_MAX);
				extremes(&functions[i], 1);
			}
		}
		if (when == DURING)
			CLAIM(named("nvmlShutdown", 0, 0) == 0);
	}
	printf("%d symbols, %d wrong\n", count, wrong);
	return wrong != 0;
}
