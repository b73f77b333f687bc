/* Signals that are waited for: SIGCHLD by a signalfd, real-time ones by sigwaitinfo. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 20, QUEUED = 200 };

static sigset_t child_set, queued_set;

static void *take_queued(void *nothing) {
	int taken = 0, in_order = 1, interrupted = 0;
	while (taken < QUEUED) {
		siginfo_t info;
		if (sigwaitinfo(&queued_set, &info) < 0) {
			interrupted += errno == EINTR;
			continue;
		}
		in_order &= info.si_value.sival_int == taken++;
		free(malloc(100));
	}
	printf("sigwaitinfo: %d, in order %d, interrupted %d\n", taken, in_order, interrupted);
	return nothing;
}

int main(void) {
	sigset_t both;
	sigemptyset(&child_set);
	sigaddset(&child_set, SIGCHLD);
	sigemptyset(&queued_set);
	sigaddset(&queued_set, SIGRTMIN + 4);
	sigorset(&both, &child_set, &queued_set);
	sigprocmask(SIG_BLOCK, &both, NULL);
	int descriptor = signalfd(-1, &child_set, SFD_CLOEXEC);

	pthread_t thread;
	pthread_create(&thread, NULL, take_queued, NULL);
	int seen = 0, right = 0, interrupted = 0;
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();
		if (child == 0)
			{
			free(malloc(100));
			_exit(i);
		}
		struct signalfd_siginfo info;
		while (read(descriptor, &info, sizeof info) < 0)
			interrupted += errno == EINTR;
		seen++;
		right += (pid_t)info.ssi_pid == child && info.ssi_code == CLD_EXITED && info.ssi_status == i;
		waitpid(child, NULL, 0);
		for (int n = i * QUEUED / CHILDREN; n < (i + 1) * QUEUED / CHILDREN; n++)
			sigqueue(getpid(), SIGRTMIN + 4, (union sigval){n});
	}
	pthread_join(thread, NULL);
	printf("signalfd: %d, right %d, interrupted %d\n", seen, right, interrupted);
	return 0;
}
