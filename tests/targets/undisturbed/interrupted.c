/* How often a waiting call is interrupted while another thread forks, execs and loads libraries:
 * never. `blocked`: the process blocks SIGCHLD; otherwise SIGCHLD has its default action, and a
 * tracer makes calls that the kernel does not restart fail (docs/limits.md).
 *
 *   interrupted [blocked] CALL…
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 10 };

static int ends[2], queue;
static _Atomic int done;

static void *disturb(void *nothing) {
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();
		if (child == 0 && i % 2)
			execl("/bin/sh", "sh", "-c", "exit 0", NULL);
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
		void *library = dlopen(i % 2 ? "libresolv.so.2" : "libanl.so.1", RTLD_NOW);
		if (!library || dlclose(library))
			_exit(99);
	}
	done = 1;
	struct msgbuf message = {.mtype = 1};
	if (write(ends[1], "x", 1) != 1 || msgsnd(queue, &message, 0, 0))
		_exit(98);
	return nothing;
}

/* Waits once, until the end if the call can; the result of the call. */
static int wait_by(const char *call) {
	struct timespec short_time = {0, 20000000};
	if (!strcmp(call, "poll"))
		return poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1);
	if (!strcmp(call, "select")) {
		fd_set set;
		FD_ZERO(&set);
		FD_SET(ends[0], &set);
		return select(ends[0] + 1, &set, NULL, NULL, NULL);
	}
	if (!strcmp(call, "nanosleep"))
		return nanosleep(&short_time, NULL);
	if (!strcmp(call, "sigtimedwait")) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		return sigtimedwait(&set, NULL, &short_time);
	}
	if (!strcmp(call, "msgrcv")) {
		struct msgbuf message;
		return msgrcv(queue, &message, 0, 0, 0);
	}
	if (!strcmp(call, "epoll_wait")) {
		int epoll = epoll_create1(EPOLL_CLOEXEC);
		struct epoll_event event = {.events = EPOLLIN};
		epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
		int result = epoll_wait(epoll, &event, 1, -1);
		int error = errno;
		close(epoll);
		errno = error;
		return result;
	}
	_exit(97);
}

int main(int argc, char **argv) {
	int first = 1;
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	if (argc > 1 && !strcmp(argv[1], "blocked")) {
		sigaddset(&blocked, SIGCHLD);
		first = 2;
	}
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	for (int i = first; i < argc; i++) {
		int interrupted = 0;
		done = 0;
		queue = msgget(IPC_PRIVATE, 0600);
		if (queue < 0 || pipe(ends))
			return 1;
		pthread_t thread;
		pthread_create(&thread, NULL, disturb, NULL);
		while (!done)
			interrupted += wait_by(argv[i]) < 0 && errno == EINTR;
		pthread_join(thread, NULL);
		close(ends[0]);
		close(ends[1]);
		msgctl(queue, IPC_RMID, NULL);
		printf("%s interrupted %d times\n", argv[i], interrupted);
	}
	return 0;
}
