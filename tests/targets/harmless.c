/* Threads that constantly check the state that a search must not change: results of system
 * calls, their times, registers, children and signals. An error ends the program with a line;
 * the end of standard input ends it with success.
 *
 *   harmless PROGRESS   a file of 16 bytes: rounds that every thread has taken part in, and this
 *                       process's pid */
#include "site.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

enum { BLOCKS = 300000, WAIT = 5000000 };

static void *blocks[BLOCKS];
static int idle[2], words[2];
static atomic_int children;

static void wrong(const char *what, long result) {
	char text[256];
	int n = snprintf(text, sizeof text, "%s: %ld (%s)\n", what, result, strerror(errno));
	if (write(2, text, n) != n)
		_exit(99);
	_exit(98);
}

static void expect(const char *what, long result, long expected) {
	if (result != expected)
		wrong(what, result);
}

static long now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void sleeps(void) {
	struct timespec time = {0, WAIT};
	long begun = now();
	expect("nanosleep", nanosleep(&time, &time), 0);
	if (now() - begun < WAIT)
		wrong("nanosleep ended early", now() - begun);
}

static void polls(void) {
	struct pollfd nothing = {idle[0], POLLIN, 0};
	long begun = now();
	expect("poll", poll(&nothing, 1, WAIT / 1000000), 0);
	if (now() - begun < WAIT)
		wrong("poll ended early", now() - begun);
}

static void waits(void) {
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += WAIT;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&mutex);
	expect("pthread_cond_timedwait", pthread_cond_timedwait(&never, &mutex, &until), ETIMEDOUT);
	pthread_mutex_unlock(&mutex);
}

static void reads(void) {
	static long expected;
	long word;
	expect("read", read(words[0], &word, sizeof word), sizeof word);
	expect("the word that was read", word, expected++);
}

static void writes(void) {
	static long word;
	expect("write", write(words[1], &word, sizeof word), sizeof word);
	word++;
	expect("usleep", usleep(1000), 0);
}

static void calls(void) {
	for (int i = 0; i < 1000; i++) {
		expect("getpid", syscall(SYS_getpid), getpid());
		errno = 0;
		expect("close", syscall(SYS_close, -1), -1);
		expect("errno", errno, EBADF);
	}
}

/* A bit for each register, and many rounds without any call. */
static void computes(void) {
	unsigned long sum;
#if defined(__x86_64__)
	__asm__ volatile("mov $0x1, %%rbx\n mov $0x2, %%rdx\n mov $0x4, %%rsi\n mov $0x8, %%rdi\n"
			 "mov $0x10, %%r8\n mov $0x20, %%r9\n mov $0x40, %%r10\n mov $0x80, %%r11\n"
			 "mov $0x100, %%r12\n mov $0x200, %%r13\n mov $0x400, %%r14\n mov $0x800, %%r15\n"
			 "mov $0x1000, %%rax\n movq %%rax, %%xmm0\n mov $0x2000, %%rax\n movq %%rax, %%xmm15\n"
			 "mov $1000000, %%rcx\n"
			 "1: dec %%rcx\n jnz 1b\n"
			 "movq %%xmm0, %%rax\n movq %%xmm15, %%rcx\n add %%rcx, %%rax\n"
			 "add %%rbx, %%rax\n add %%rdx, %%rax\n add %%rsi, %%rax\n add %%rdi, %%rax\n"
			 "add %%r8, %%rax\n add %%r9, %%rax\n add %%r10, %%rax\n add %%r11, %%rax\n"
			 "add %%r12, %%rax\n add %%r13, %%rax\n add %%r14, %%rax\n add %%r15, %%rax\n"
			 : "=a"(sum)
			 :
			 : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
			   "xmm0", "xmm15", "cc");
#elif defined(__aarch64__)
	__asm__ volatile("mov x1, #0x1\n mov x2, #0x2\n mov x7, #0x4\n mov x8, #0x8\n"
			 "mov x9, #0x10\n mov x15, #0x20\n mov x16, #0x40\n mov x17, #0x80\n"
			 "mov x19, #0x100\n mov x20, #0x200\n mov x28, #0x400\n mov x30, #0x800\n"
			 "mov x0, #0x1000\n fmov d0, x0\n mov x0, #0x2000\n fmov d31, x0\n"
			 "mov x3, #0x4240\n movk x3, #0xf, lsl #16\n"
			 "1: subs x3, x3, #1\n b.ne 1b\n"
			 "fmov x0, d0\n fmov x3, d31\n add x0, x0, x3\n"
			 "add x0, x0, x1\n add x0, x0, x2\n add x0, x0, x7\n add x0, x0, x8\n"
			 "add x0, x0, x9\n add x0, x0, x15\n add x0, x0, x16\n add x0, x0, x17\n"
			 "add x0, x0, x19\n add x0, x0, x20\n add x0, x0, x28\n add x0, x0, x30\n"
			 "mov %0, x0\n"
			 : "=r"(sum)
			 :
			 : "x0", "x1", "x2", "x3", "x7", "x8", "x9", "x15", "x16", "x17", "x19", "x20", "x28", "x30",
			   "d0", "d31", "cc");
#else
#error "unknown architecture"
#endif
	expect("the registers", sum, 0x3fff);
}

static struct check {
	void (*once)(void);
	atomic_ulong rounds;
	unsigned long seen;
} checks[] = {{sleeps}, {polls}, {waits}, {reads}, {writes}, {calls}, {computes}};

enum { CHECKS = sizeof checks / sizeof *checks };

static void *repeat(void *argument) {
	struct check *check = argument;
	for (;;) {
		check->once();
		check->rounds++;
	}
	return NULL;
}

static void is_child(int signal) {
	(void)signal;
	children++;
}

/* A child of its own, and no other. */
static void forks(int number) {
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(number & 127);
	expect("waitpid", waitpid(-1, &status, 0), child);
	expect("the child's status", status, (number & 127) << 8);
	expect("signals of children", children, number);
	expect("another child", waitpid(-1, &status, WNOHANG), -1);
	expect("errno", errno, ECHILD);
}

static int all_went_on(void) {
	for (int i = 0; i < CHECKS; i++)
		if (checks[i].rounds == checks[i].seen)
			return 0;
	for (int i = 0; i < CHECKS; i++)
		checks[i].seen = checks[i].rounds;
	return 1;
}

int main(int argc, char **argv) {
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
	if (fd < 0)
		return 96;
	uint64_t *progress = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (progress == MAP_FAILED || pipe(idle) || pipe(words))
		fail("mmap or pipe");
	for (int i = 0; i < BLOCKS; i++)
		if (!(blocks[i] = malloc(100)))
			fail("malloc");
	sigset_t only_here;
	sigemptyset(&only_here);
	sigaddset(&only_here, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &only_here, NULL);
	struct sigaction action = {.sa_handler = is_child, .sa_flags = SA_RESTART};
	sigaction(SIGCHLD, &action, NULL);
	pthread_t thread;
	for (int i = 0; i < CHECKS; i++)
		if (pthread_create(&thread, NULL, repeat, &checks[i]))
			fail("pthread_create");
	pthread_sigmask(SIG_UNBLOCK, &only_here, NULL);
	progress[1] = getpid();
	struct pollfd end = {0, POLLIN, 0};
	int number = 0;
	for (;;) {
		int result = poll(&end, 1, 5);
		if (result > 0)
			break;
		expect("poll of standard input", result, 0);
		forks(++number);
		if (all_went_on())
			progress[0]++;
	}
	return 0;
}
