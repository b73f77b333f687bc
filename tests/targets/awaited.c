/* A function that a recording waits for, called in a thread that starts after the wait has begun.
 *
 *   awaited   "begun", await a line; in a thread, `awaited_step`: a child, await a line; exit 7 */
#include <pthread.h>
#include "site.h"

OUT_OF_LINE static void await_line(void) {
	char c = 0;
	while (read(0, &c, 1) == 1 && c != '\n')
		;
}

OUT_OF_LINE void awaited_step(void) {
	/* A probe must not keep a process from starting another. */
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int status = 1;
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail("a child");
	await_line();
}

static void *run(void *unused) {
	awaited_step();
	return unused;
}

int main(void) {
	puts("begun");
	fflush(stdout);
	await_line();
	pthread_t thread;
	if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL))
		fail("a thread");
	return 7;
}
