/* Processes that do nothing but fork, and children that do nothing but make a thread.
 *
 *   forks PROCESSES TIMES   each process forks a child TIMES times; ends with status 0
 */
#include "site.h"
#include <pthread.h>

static void *work(void *unused) {
	return unused;
}

static void await(pid_t child) {
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail("a child");
}

static void fork_one(void) {
	pid_t child = fork();
	if (child == 0) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, work, NULL))
			fail("pthread_create");
		pthread_join(thread, NULL);
		_exit(0);
	}
	await(child);
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 96;
	int processes = atoi(argv[1]), times = atoi(argv[2]);
	pid_t forkers[processes];
	for (int i = 0; i < processes; i++) {
		forkers[i] = fork();
		if (forkers[i] == 0) {
			for (int j = 0; j < times; j++)
				fork_one();
			_exit(0);
		}
	}
	for (int i = 0; i < processes; i++)
		await(forkers[i]);
	return 0;
}
