/* Something to debug: allocates, forks and calls a function. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int work(int n) {
	char *text = malloc(100);
	snprintf(text, 100, "work %d", n);
	puts(text);
	free(text);
	return n + 1;
}

int main(void) {
	setbuf(stdout, NULL);
	pid_t child = fork();
	if (child == 0)
		_exit(2);
	int status;
	waitpid(child, &status, 0);
	return work(WEXITSTATUS(status));
}
