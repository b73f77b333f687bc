// Starts a process whose execve does not end: its second thread stays in the tracer's exit stop. Prints its pid.
#include "site.h"
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

static int born[2], traced[2];

static void *wait_for_the_end(void *tid) {
	long own = syscall(SYS_gettid);
	if (write(born[1], &own, sizeof own) != sizeof own)
		fail("write");
	for (;;)
		pause();
	return tid;
}

int main(void) {
	char byte;
	long tid;
	pthread_t thread;
	if (pipe(born) || pipe(traced))
		fail("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		if (pthread_create(&thread, NULL, wait_for_the_end, NULL) || read(traced[0], &byte, 1) != 1)
			fail("a thread");
		execl("/bin/true", "true", NULL);
		fail("execl");
	}
	if (read(born[0], &tid, sizeof tid) != sizeof tid || ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACEEXIT))
		fail("PTRACE_SEIZE");
	if (write(traced[1], "", 1) != 1)
		fail("write");
	// execve waits until this thread has ended, and the tracer does not continue it.
	int status;
	if (waitpid(tid, &status, __WALL) != tid || status >> 8 != (SIGTRAP | PTRACE_EVENT_EXIT << 8))
		fail("waitpid");
	printf("%d\n", pid);
	fflush(stdout);
	if (read(0, &byte, 1) < 0)
		fail("read");
	return 0;
}
