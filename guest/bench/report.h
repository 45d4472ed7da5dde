/* The report at the end of a run: the same figures as lines of text or as one
 * JSON object on stdout. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

void report_begin(bool json);
void report_text(const char *name, const char *value);
void report_number(const char *name, double value);
void report_flag(const char *name, bool value);
void report_end(void);

#endif
