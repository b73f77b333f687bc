/* A sandbox: any system call but these ends the process. */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int allowed[] = {SYS_read,	    SYS_write,	  SYS_mmap,	    SYS_munmap,
			      SYS_mremap,   SYS_brk,	  SYS_mprotect,	    SYS_madvise,
			      SYS_clone,    SYS_clone3,	  SYS_wait4,	    SYS_futex,
			      SYS_exit,	    SYS_gettid,	  SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_set_robust_list,
			      SYS_rseq,	    SYS_exit_group,  SYS_getrandom};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

static void confine(void) {
	struct sock_filter program[3 + ALLOWED + 2];
	int n = 0;
	program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < ALLOWED; i++)
		program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], ALLOWED - i, 0);
	program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {n, program};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(99);
}

/* printf would query the type of the output. */
static void print(const char *format, int a, int b) {
	char line[100];
	int n = snprintf(line, sizeof line, format, a, b);
	if (write(1, line, n) != n)
		_exit(98);
}

static void *allocate(void *sum) {
	for (int i = 0; i < 1000; i++) {
		char *block = malloc(100 + i * 100);
		block = realloc(block, 200 + i * 100);
		*(int *)sum += block != NULL;
		free(block);
	}
	return NULL;
}

int main(void) {
	int sum = 0, status;
	confine();
	allocate(&sum);
	pthread_t thread;
	pthread_create(&thread, NULL, allocate, &sum);
	pthread_join(thread, NULL);
	pid_t child = fork();
	if (child == 0) {
		allocate(&sum);
		_exit(sum == 3000 ? 3 : 4);
	}
	waitpid(child, &status, 0);
	print("blocks %d, child %d\n", sum, WEXITSTATUS(status));
	child = fork();
	if (child == 0)
		_exit(getppid() * 0);
	waitpid(child, &status, 0);
	print("a call that is not allowed: signal %d\n", WTERMSIG(status), 0);
	return 0;
}
