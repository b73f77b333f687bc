/* Asks to be traced by its parent, as programs do that do not want to be debugged, and sandboxes
 * and debuggers do of their children. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
	setbuf(stdout, NULL);
	int stops = 0, status;
	pid_t child = fork();
	if (child == 0) {
		free(malloc(100));
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(errno);
		raise(SIGSTOP);
		execl("/bin/sh", "sh", "-c", "exit 3", NULL);
		_exit(99);
	}
	for (;;) {
		if (waitpid(child, &status, 0) != child)
			return 1;
		if (!WIFSTOPPED(status))
			break;
		stops++;
		printf("stopped by %s\n", strsignal(WSTOPSIG(status)));
		int signal = WSTOPSIG(status) == SIGSTOP || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		ptrace(PTRACE_CONT, child, NULL, (void *)(long)signal);
	}
	printf("child %d after %d stops\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, stops);
	printf("itself %ld\n", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	return 0;
}
