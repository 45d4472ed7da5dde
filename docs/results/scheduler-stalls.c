/*
 * Shows how long the host's kernel keeps a thread waiting beside another cgroup of the same weight whose threads wake
 * often, without Pegasus. It needs root and the cpu controller of cgroup version 1.
 *
 *	gcc -O2 -Wall -Wextra -pthread scheduler-stalls.c -o scheduler-stalls
 *	chrt -f 60 timeout -s KILL 60 ./scheduler-stalls PROCESSES WAKERS SECONDS
 *
 * Each of so many processes of one group has so many threads that compute for 10 us and sleep for 20 to 220 us. The
 * processes alone have no real-time priority. In the other group one thread computes all the time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void enter(const char *group)
{
	char path[128], pid[16];
	struct sched_param ordinary = { 0 };

	snprintf(path, sizeof path, "/sys/fs/cgroup/cpu/%s", group);
	mkdir(path, 0755);
	strcat(path, "/cgroup.procs");
	snprintf(pid, sizeof pid, "%d", getpid());
	sched_setscheduler(0, SCHED_OTHER, &ordinary);
	int fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, pid, strlen(pid)) < 0) {
		perror(path);
		exit(1);
	}
	close(fd);
}

static void *wake_often(void *unused)
{
	(void)unused;
	for (;;) {
		usleep(20 + rand() % 200);
		for (double end = now() + 10e-6; now() < end;)
			;
	}
	return NULL;
}

static void compute(double seconds)
{
	double began = now(), last = began, longest = 0, ran = 0;

	while (last < began + seconds) {
		double t = now(), pause = t - last;
		if (pause > longest)
			longest = pause;
		if (pause < 0.5e-3)
			ran += pause;
		last = t;
	}
	printf("it ran for %.0f %% of %.1f s, and was kept waiting for %.0f ms at most\n", 100 * ran / (last - began), last - began, longest * 1e3);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s PROCESSES WAKERS SECONDS\n", argv[0]);
		return 2;
	}
	int processes = atoi(argv[1]), wakers = atoi(argv[2]);

	setpgid(0, 0);
	signal(SIGTERM, SIG_IGN);
	for (int i = 0; i < processes; i++)
		if (!fork()) {
			signal(SIGTERM, SIG_DFL);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			enter("stalls-often");
			for (int k = 0; k < wakers; k++) {
				pthread_t thread;
				pthread_create(&thread, NULL, wake_often, NULL);
			}
			pause();
		}
	pid_t victim = fork();
	if (!victim) {
		enter("stalls-steady");
		compute(atof(argv[3]));
		return 0;
	}
	waitpid(victim, NULL, 0);
	kill(0, SIGTERM);
	return 0;
}
