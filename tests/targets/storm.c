/* A storm of new processes, programs, libraries and threads, until it is killed, whose every
 * process says when it runs.
 *
 *   storm FILE WORKERS     the storm
 *   storm FILE run WORKER  a program that a child of a worker executes
 *
 * FILE is shared memory: the moment from which gaps count (CLOCK_MONOTONIC, ns), this process's
 * pid, and for each worker a `struct worker`. A worker waits for its children, so one process at a
 * time writes it. */
#include "site.h"
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

SITE(stormed, malloc(a))

struct worker {
	uint64_t moment;  /* that the rest is of */
	uint64_t last;    /* time at which it, or a child of its, ran last */
	uint64_t longest; /* gap between two such times, ns */
	uint64_t times;
};

static struct {
	_Atomic uint64_t moment;
	uint64_t pid;
	struct worker workers[];
} *shared;

static struct worker *self;

static void runs(void) {
	uint64_t moment = shared->moment;
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	uint64_t now = time.tv_sec * 1000000000ull + time.tv_nsec;
	if (self->moment != moment) {
		self->longest = self->times = 0;
		self->last = moment;
		__atomic_store_n(&self->moment, moment, __ATOMIC_RELEASE);
	}
	if (now - self->last > self->longest)
		self->longest = now - self->last;
	self->last = now;
	__atomic_add_fetch(&self->times, 1, __ATOMIC_RELEASE);
}

static void await(pid_t child) {
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail("a child");
	runs();
}

static void *fork_one(void *nothing) {
	pid_t child = fork();
	if (child == 0) {
		runs();
		_exit(site_stormed(NULL, 100, 0) ? 0 : 1);
	}
	await(child);
	return nothing;
}

static void execute(char *program, char *file, int worker, int by_vfork) {
	char number[16];
	snprintf(number, sizeof number, "%d", worker);
	pid_t child = by_vfork ? vfork() : fork();
	if (child == 0) {
		execl(program, program, file, "run", number, NULL);
		_exit(99);
	}
	await(child);
}

static void load(void) {
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 2; i++) {
			runs();
			if (!dlopen(i ? "libresolv.so.2" : "libanl.so.1", RTLD_NOW))
				_exit(99);
		}
		runs();
		_exit(0);
	}
	await(child);
}

static void work(char *program, char *file, int worker) {
	for (;;) {
		pthread_t thread;
		switch (worker % 4) {
		case 0:
			fork_one(NULL);
			break;
		case 1:
			execute(program, file, worker, worker / 4 % 2);
			break;
		case 2:
			load();
			break;
		default:
			if (pthread_create(&thread, NULL, fork_one, NULL) || pthread_join(thread, NULL))
				fail("a thread");
		}
		/* Each process leaves probes to take away: some hundreds a second are enough. */
		usleep(20000);
	}
}

int main(int argc, char **argv) {
	int fd = argc > 2 ? open(argv[1], O_RDWR) : -1;
	if (fd < 0)
		return 96;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	if (argc == 4) {
		self = &shared->workers[atoi(argv[3])];
		runs();
		return site_stormed(NULL, 100, 0) ? 0 : 1;
	}
	int workers = atoi(argv[2]);
	for (int i = 0; i < workers; i++) {
		pid_t worker = fork();
		if (worker == 0) {
			self = &shared->workers[i];
			work(argv[0], argv[1], i);
		}
	}
	shared->pid = getpid();
	/* Workers end by being killed only, with the group. */
	int status;
	wait(&status);
	fail("a worker");
}
