/* Programs started by vfork, posix_spawn, system and popen. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { EACH = 10 };

static int status_of(pid_t child) {
	int status;
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static pid_t start(char **command) {
	pid_t child = vfork();
	if (child == 0) {
		execv("/bin/sh", command);
		_exit(99);
	}
	return child;
}

int main(void) {
	char *command[] = {"sh", "-c", "exit 3", NULL};
	int by_vfork = 0, by_spawn = 0, by_system = 0, lines = 0, missing = 0;
	pid_t child;
	for (int i = 0; i < EACH; i++) {
		by_vfork += status_of(start(command));
		if (posix_spawn(&child, "/bin/sh", NULL, NULL, command, environ) == 0)
			by_spawn += status_of(child);
		missing += posix_spawn(&child, "/nowhere", NULL, NULL, command, environ) != 0;
		by_system += WEXITSTATUS(system("exit 4"));
		FILE *pipe = popen("/bin/echo line", "r");
		char text[16];
		while (fgets(text, sizeof text, pipe))
			lines++;
		pclose(pipe);
	}
	printf("vfork %d, posix_spawn %d, missing %d, system %d, popen %d\n", by_vfork, by_spawn,
	       missing, by_system, lines);
	return 0;
}
