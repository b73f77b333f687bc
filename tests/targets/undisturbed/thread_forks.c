/* Threads that fork, exec and wait, all at once. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, EACH = 10 };

static void *fork_and_exec(void *result) {
	for (int i = 0; i < EACH; i++) {
		free(malloc(100));
		pid_t child = fork();
		if (child == 0 && i % 2)
			execl("/bin/sh", "sh", "-c", "exit 2", NULL);
		if (child == 0)
			_exit(1);
		int status;
		if (waitpid(child, &status, 0) == child && WIFEXITED(status))
			*(int *)result += WEXITSTATUS(status);
	}
	return NULL;
}

int main(void) {
	pthread_t threads[THREADS];
	int sums[THREADS] = {0};
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, fork_and_exec, &sums[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		printf("thread %d: %d\n", i, sums[i]);
	}
	return 0;
}
