/* A parent's view of children that allocate, load libraries, fork and exec, by waiting for
 * stops and continuations too and by a SIGCHLD handler that would count them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 12 };

static volatile sig_atomic_t signals, codes[CLD_CONTINUED + 1];

static void on_child(int signal, siginfo_t *info, void *context) {
	(void)signal, (void)context;
	signals++;
	codes[info->si_code]++;
}

static void work(int n, char *self) {
	free(malloc(100));
	if (!dlopen("libresolv.so.2", RTLD_NOW) || !dlopen("libanl.so.1", RTLD_NOW))
		_exit(99);
	pid_t grandchild = fork();
	if (grandchild == 0)
		{
			free(malloc(100));
			_exit(0);
		}
	int status;
	if (waitpid(grandchild, &status, 0) != grandchild || status)
		_exit(98);
	if (n % 3 == 1)
		execl(self, self, "exec", NULL);
	if (n % 3 == 2)
		raise(SIGTERM);
	_exit(7);
}

int main(int argc, char **argv) {
	if (argc > 1)
		return 8;
	struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGCHLD, &action, NULL);
	int exits = 0, kills = 0, others = 0;
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();
		if (child == 0)
			work(i, argv[0]);
		int status;
		do {
			if (waitpid(child, &status, WUNTRACED | WCONTINUED) != child)
				return 1;
			if (WIFEXITED(status) && WEXITSTATUS(status) == 7 + (i % 3 == 1))
				exits++;
			else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM)
				kills++;
			else
				others++;
		} while (!WIFEXITED(status) && !WIFSIGNALED(status));
	}
	printf("exits %d, kills %d, others %d\n", exits, kills, others);
	printf("signals %d: exited %d, killed %d, stopped %d, continued %d, trapped %d\n", signals,
	       codes[CLD_EXITED], codes[CLD_KILLED], codes[CLD_STOPPED], codes[CLD_CONTINUED],
	       codes[CLD_TRAPPED]);
	return 0;
}
