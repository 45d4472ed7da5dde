/* The log on stderr: failures only, unless PEGASUS_LOG sets another level (off, error, info, debug). */
#ifndef PEGASUS_CORE_LOG_H
#define PEGASUS_CORE_LOG_H

/* Log levels of PEGASUS_LOG, in order. */
enum log_level { LOG_OFF, LOG_ERROR, LOG_INFO, LOG_DEBUG };
void log_at(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs that the value of an environment variable has no effect, and the valid values. The caller does so once. */
void setting_ignored(const char *name, const char *value, const char *wanted);

#endif
