/* Makes a child that no tracer follows, which traces each thread of its parent, as Breakpad and LeakSanitizer do to
 * inspect a program from within. The other threads wait in a call that the kernel never restarts. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20

static int may_trace[2], polled;

static int trace_parent(void *unused) {
	char path[32], byte;
	int traced = 0, failed = 0;
	snprintf(path, sizeof path, "/proc/%d/task", getppid());
	if (read(may_trace[0], &byte, 1) != 1)
		return 99;
	DIR *tasks = opendir(path);
	for (struct dirent *task; tasks && (task = readdir(tasks));) {
		int tid = atoi(task->d_name);
		if (tid)
			*(ptrace(PTRACE_SEIZE, tid, NULL, NULL) ? &failed : &traced) += 1;
	}
	return failed ? 50 + failed : traced;
}

static void *waits(void *unused) {
	struct epoll_event event;
	return (void *)(intptr_t)(epoll_wait(polled, &event, 1, -1) != 1);
}

int main(void) {
	static char stack[1 << 16];
	pthread_t threads[THREADS];
	int done = eventfd(0, 0), right = 0;
	intptr_t interrupted = 0;
	polled = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	if (pipe(may_trace) || epoll_ctl(polled, EPOLL_CTL_ADD, done, &event))
		return 1;
	for (int n = 0; n < THREADS; n++)
		if (pthread_create(&threads[n], NULL, waits, NULL))
			return 1;
	for (int round = 0; round < ROUNDS; round++) {
		int status;
		int flags = CLONE_FS | CLONE_FILES | CLONE_UNTRACED | SIGCHLD;
		pid_t child = clone(trace_parent, stack + sizeof stack, flags, NULL);
		if (child < 0 || write(may_trace[1], "", 1) != 1 || waitpid(child, &status, 0) != child)
			return 1;
		right += WIFEXITED(status) && WEXITSTATUS(status) == THREADS + 1;
	}
	uint64_t one = 1;
	if (write(done, &one, sizeof one) != sizeof one)
		return 1;
	for (int n = 0; n < THREADS; n++) {
		void *result;
		pthread_join(threads[n], &result);
		interrupted += (intptr_t)result;
	}
	printf("traced %d times of %d, interrupted %d\n", right, ROUNDS, (int)interrupted);
	return 0;
}
