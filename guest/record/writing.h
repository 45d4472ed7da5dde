/* Interface between the recorder's parts. All functions require the lock. */
#pragma once

#include "record.h"

#include <stdio.h>

/* record.c */
FILE *the_file(void);
void *real_called(const char *name);
void *wrapper_of(void *function);
uint64_t keep_data(const void *data, size_t bytes);
uint64_t keep_little(const void *data, size_t bytes);
void put_hex(FILE *to, const void *data, size_t bytes);
void put_text(FILE *to, const char *s, size_t n);
void put_data(FILE *to, const void *data, size_t bytes);   /* data passed to the driver */
void put_digest(FILE *to, const void *data, size_t bytes); /* data returned by it */

/* special.c */
int is_unrecorded(const char *name);
int is_pinned(const void *host); /* whether the driver allocated it */
int put_special(FILE *to, const char *name, const uint64_t *a, int i);
void put_prelude(const char *name, const uint64_t *a);
void put_extent(FILE *to, const char *name, const uint64_t *a, uint64_t made);
void put_output(FILE *to, const char *name, const uint64_t *a, const void *p, size_t bytes, CUresult result);
int in_callback(void);
void stand_between(const char *name, uint64_t *a); /* replaces the program's callback by a wrapper */
void after_call(const char *name, uint64_t *a, CUresult result);
void put_epilogue(const char *name, const uint64_t *a, CUresult result);
