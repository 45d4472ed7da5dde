#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

enum { Size = 256, Iterations, Seconds, Queue, Warmup, Device, PauseMs, CpuSteps, CopyMb, KernelMs, Steps, Json, Quiet, NoCheck, Help };

static const struct option known[] = {
	{ "size", required_argument, NULL, Size },
	{ "iterations", required_argument, NULL, Iterations },
	{ "seconds", required_argument, NULL, Seconds },
	{ "queue", required_argument, NULL, Queue },
	{ "warmup", required_argument, NULL, Warmup },
	{ "device", required_argument, NULL, Device },
	{ "pause-ms", required_argument, NULL, PauseMs },
	{ "cpu-steps", required_argument, NULL, CpuSteps },
	{ "copy-mb", required_argument, NULL, CopyMb },
	{ "kernel-ms", required_argument, NULL, KernelMs },
	{ "steps", required_argument, NULL, Steps },
	{ "json", no_argument, NULL, Json },
	{ "quiet", no_argument, NULL, Quiet },
	{ "no-check", no_argument, NULL, NoCheck },
	{ "help", no_argument, NULL, Help },
	{ NULL, 0, NULL, 0 },
};

static void usage(FILE *to, const struct workload *w)
{
	fprintf(to, "%s: %s\n\n", w->name, w->about);
	fprintf(to, "  --size N        %s, %zu to %zu (default %zu)\n", w->size_means, w->least, w->most, w->size);
	fprintf(to, "  --iterations N  rounds (default 10, or no limit with --seconds)\n"
		    "  --seconds S     how long to go on (default: until the rounds are done)\n"
		    "  --queue N       keep N to N+1 rounds in flight; 0 waits for each (default 0)\n"
		    "  --warmup N      rounds before the clock starts (default 1)\n"
		    "  --device N      which device (default 0)\n"
		    "  --pause-ms T    sleep after each round (default: not at all)\n"
		    "  --cpu-steps N   compute so many steps on the processor before each round (default: none)\n"
		    "  --copy-mb N     copy so many million bytes to the device before each round, and back after it (default: none)\n");
	if (w->timed)
		fprintf(to, "  --kernel-ms T   how long each kernel shall take (default 1)\n"
			    "  --steps N       steps of each kernel, instead of trying out how many take T\n");
	fprintf(to, "  --no-check      don't compare the result with the processor's\n"
		    "  --json          print the report as JSON\n"
		    "  --quiet         no progress on stderr\n");
}

static _Noreturn void wrong(const struct workload *w, const char *option, const char *value, const char *want)
{
	fprintf(stderr, "%s: --%s %s: must be %s\n", w->name, option, value, want);
	exit(2);
}

static long long whole(const struct workload *w, const char *option, const char *value, long long low, long long high)
{
	char *end, want[80];

	errno = 0;
	long long n = strtoll(value, &end, 10);
	if (errno || end == value || *end || n < low || n > high) {
		snprintf(want, sizeof want, "a whole number from %lld to %lld", low, high);
		wrong(w, option, value, want);
	}
	return n;
}

static double positive(const struct workload *w, const char *option, const char *value, double high)
{
	char *end, want[80];
	double d = strtod(value, &end);

	if (end == value || *end || !isfinite(d) || d <= 0 || d > high) {
		snprintf(want, sizeof want, "a number above 0, at most %g", high);
		wrong(w, option, value, want);
	}
	return d;
}

/* Sets one option; false if the program doesn't have it. */
static bool set(struct options *o, const struct workload *w, int which, const char *name, const char *value)
{
	switch (which) {
	case Size: o->size = (size_t)whole(w, name, value, (long long)w->least, (long long)w->most); break;
	case Iterations: o->iterations = whole(w, name, value, 1, LLONG_MAX); break;
	case Seconds: o->seconds = positive(w, name, value, 1e7); break;
	case Queue: o->queue = (int)whole(w, name, value, 0, 1000); break;
	case Warmup: o->warmup = (int)whole(w, name, value, 0, 1000000); break;
	case Device: o->device = (int)whole(w, name, value, 0, 1000); break;
	case PauseMs: o->pause_ms = positive(w, name, value, 60000); break;
	case Json: o->json = true; break;
	case Quiet: o->quiet = true; break;
	case NoCheck: o->check = false; break;
	case CpuSteps: o->cpu_steps = (uint32_t)whole(w, name, value, 1, UINT32_MAX); break;
	case CopyMb: o->copy_mb = positive(w, name, value, 4000); break;
	case KernelMs: o->kernel_ms = positive(w, name, value, 60000); return w->timed;
	case Steps: o->steps = (uint32_t)whole(w, name, value, 1, UINT32_MAX); return w->timed;
	default: return false;
	}
	return true;
}

struct options options_parse(int argc, char **argv, const struct workload *w)
{
	struct options o = { .size = w->size, .warmup = 1, .kernel_ms = 1, .check = true };
	int which, index = 0;

	while ((which = getopt_long(argc, argv, "", known, &index)) != -1) {
		if (which == Help) {
			usage(stdout, w);
			exit(0);
		}
		if (which == '?' || !set(&o, w, which, known[index].name, optarg)) {
			usage(stderr, w);
			exit(2);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "%s: unexpected argument %s\n", w->name, argv[optind]);
		exit(2);
	}
	if (o.iterations == 0 && o.seconds == 0)
		o.iterations = 10;
	return o;
}
