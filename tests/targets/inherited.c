/* Writes the state that it was started with, which memtrace must not change.
 * inherited FILE */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy(FILE *out, const char *name) {
	char path[64];
	snprintf(path, sizeof path, "/proc/self/%s", name);
	FILE *in = fopen(path, "r");
	fprintf(out, "== %s\n", name);
	if (!in)
		return;
	for (int c; (c = fgetc(in)) != EOF;)
		fputc(c ? c : '\n', out);
	fputc('\n', out);
	fclose(in);
}

int main(int argc, char **argv) {
	char link[64], to[512];
	/* Before anything is opened. */
	char open_files[64][600];
	int n = 0;
	for (int fd = 0; fd < 300 && n < 64; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(link, to, sizeof to - 1);
		if (length < 0)
			continue;
		to[length] = 0;
		snprintf(open_files[n++], 600, "fd %d %s flags %x %x", fd, to, fcntl(fd, F_GETFD),
			 fcntl(fd, F_GETFL));
	}
	FILE *out = fopen(argv[1], "w");
	if (argc < 2 || !out)
		return 96;
	for (int i = 0; i < n; i++)
		fprintf(out, "%s\n", open_files[i]);
	static const char *const files[] = {"limits",	     "status",	      "stat",	    "environ",
					    "cgroup",	     "oom_score_adj", "personality", "timerslack_ns",
					    "coredump_filter", "loginuid",    "cmdline",    "setgroups"};
	for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
		copy(out, files[i]);
	struct sched_param param;
	sched_getparam(0, &param);
	fprintf(out, "nice %d scheduler %d %d umask %o\n", getpriority(PRIO_PROCESS, 0),
		sched_getscheduler(0), param.sched_priority, umask(0));
	fprintf(out, "own session %d, group %d\n", getsid(0) == getpid(), tcgetpgrp(2) >= 0);
	return fclose(out) ? 97 : 0;
}
