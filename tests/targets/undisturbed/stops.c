/* Stops that are meant: a child with threads stops itself or is stopped, its parent sees it, and
 * it resumes when it is continued, not before. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic long *rounds;

static void *spin(void *nothing) {
	for (;;) {
		free(malloc(100));
		atomic_fetch_add(rounds, 1);
		usleep(100);
	}
	return nothing;
}

static void expect(pid_t child, const char *what) {
	int status;
	if (waitpid(child, &status, WUNTRACED | WCONTINUED) != child)
		_exit(1);
	printf("%s: %s %d\n", what,
	       WIFSTOPPED(status)     ? "stopped"
	       : WIFCONTINUED(status) ? "continued"
	       : WIFSIGNALED(status)  ? "killed"
				      : "exited",
	       WIFSTOPPED(status)    ? WSTOPSIG(status)
	       : WIFSIGNALED(status) ? WTERMSIG(status)
	       : WIFEXITED(status)   ? WEXITSTATUS(status)
				     : 0);
	fflush(stdout);
}

static void expect_frozen(void) {
	long before = *rounds;
	usleep(100000);
	printf("rounds while stopped: %ld\n", *rounds - before);
}

static void await_rounds(void) {
	for (long goal = *rounds + 20; *rounds < goal;)
		usleep(1000);
}

int main(void) {
	rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0) {
		pthread_t threads[3];
		for (int i = 0; i < 3; i++)
			pthread_create(&threads[i], NULL, spin, NULL);
		raise(SIGSTOP);
		pause();
	}
	expect(child, "by itself");
	expect_frozen();
	int signals[] = {SIGSTOP, SIGTSTP, SIGSTOP};
	for (int i = 0; i < 3; i++) {
		kill(child, SIGCONT);
		expect(child, "SIGCONT");
		await_rounds();
		kill(child, signals[i]);
		expect(child, i == 1 ? "SIGTSTP" : "SIGSTOP");
		expect_frozen();
	}
	kill(child, SIGKILL);
	expect(child, "SIGKILL");
	return 0;
}
