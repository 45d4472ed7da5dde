#include "report.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

static bool as_json, first;

void report_begin(bool json)
{
	as_json = json;
	first = true;
	if (as_json)
		putchar('{');
}

/* Begins an entry. Names and texts are constants and need no escaping. */
static void name_of(const char *name)
{
	if (as_json)
		printf("%s\"%s\": ", first ? "" : ", ", name);
	else
		printf("%-18s ", name);
	first = false;
}

static void value(const char *spelled)
{
	printf(as_json ? "%s" : "%s\n", spelled);
}

void report_text(const char *name, const char *text)
{
	name_of(name);
	printf(as_json ? "\"%s\"" : "%s\n", text);
}

void report_number(const char *name, double number)
{
	char spelled[40];

	snprintf(spelled, sizeof spelled, fabs(number) < 1e15 && number == (double)(int64_t)number ? "%.0f" : "%.9g", number);
	name_of(name);
	value(spelled);
}

void report_flag(const char *name, bool flag)
{
	name_of(name);
	value(flag ? "true" : "false");
}

void report_end(void)
{
	if (as_json)
		puts("}");
	fflush(stdout);
}
