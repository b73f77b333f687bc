/* Ways to grow, one per run, for the verdicts.
 *
 *   growth SCENARIO SECONDS SEED [FOLDER]
 *
 * Works in steps of about 10 ms until the time is over. The seed changes sizes
 * and rates, never the kind. FOLDER is where files go (page-cache). Names of
 * functions that verdicts must blame begin with grow_.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUT_OF_LINE __attribute__((noipa))

static double seconds;
static uint64_t state;
static const char *folder = ".";

static double now(void)
{
	static double start;
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	double t = (double)time.tv_sec + (double)time.tv_nsec / 1e9;
	if (start == 0)
		start = t;
	return t - start;
}

/* xorshift64*: between 0 and 1. */
static double uniform(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (double)((state * 0x2545F4914F6CDD1DULL) >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += uniform();
	return sum - 6;
}

static size_t between(size_t least, size_t most) { return least + (size_t)(uniform() * (double)(most - least + 1)); }

/* The end of a step: false when the time is over. */
static int next(void)
{
	usleep((useconds_t)between(8000, 12000));
	return now() < seconds;
}

static void fail(const char *what)
{
	perror(what);
	exit(98);
}

static void *touched(void *p, size_t size)
{
	if (!p || p == MAP_FAILED)
		fail("allocation");
	memset(p, 1, size);
	return p;
}

/* Ordinary work: blocks that come and go. */
static void work(void)
{
	static void *blocks[64];
	for (int i = 0; i < 16; i++) {
		size_t at = between(0, 63);
		free(blocks[at]);
		blocks[at] = touched(malloc(between(16, 4000)), 16);
	}
}

OUT_OF_LINE static void *grow_heap(size_t size) { return touched(malloc(size), size); }

static void leak_malloc(void)
{
	size_t size = between(2000, 9000);
	do {
		work();
		for (size_t i = between(1, 6); i > 0; i--)
			grow_heap(between(size / 2, size));
	} while (next());
}

/* One block of ten is forgotten. */
static void leak_some(void)
{
	size_t size = between(1000, 3000);
	do {
		work();
		for (int i = 0; i < 40; i++) {
			void *block = grow_heap(size);
			if (i % 10)
				free(block);
		}
	} while (next());
}

/* A buffer is cut to the bytes read: the rest of it is a hole that no other buffer fits into. */
OUT_OF_LINE static void *grow_shrunk(void *buffer, size_t size) { return realloc(buffer, size); }

OUT_OF_LINE static void *fill(size_t size) { return touched(malloc(size), size); }

static void requests(int keep)
{
	void *buffers[4];
	size_t size = between(16000, 28000);
	do {
		work();
		for (int i = 0; i < 4; i++)
			buffers[i] = fill(size);
		for (int i = 0; i < 4; i++) {
			void *answer = grow_shrunk(buffers[i], between(80, 200));
			if (!keep)
				free(answer);
		}
	} while (next());
}

static void leak_shrunk(void) { requests(1); }

static void shrunk(void) { requests(0); }

static void leak_small(void)
{
	size_t count = between(100, 400);
	do {
		work();
		for (size_t i = 0; i < count; i++)
			grow_heap(between(1, 24));
	} while (next());
}

OUT_OF_LINE static void *grow_mmap(size_t size)
{
	return touched(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), size);
}

static void leak_mmap(void)
{
	size_t pages = between(2, 12);
	do {
		work();
		grow_mmap(pages * 4096);
	} while (next());
}

OUT_OF_LINE static void *grow_syscall(size_t size)
{
	long p = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	return touched((void *)p, size);
}

static void leak_syscall(void)
{
	size_t pages = between(2, 12);
	do {
		work();
		grow_syscall(pages * 4096);
	} while (next());
}

OUT_OF_LINE static void grow_space(size_t size)
{
	if (mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		fail("mmap");
}

/* Address space that is never touched. */
static void leak_mappings(void)
{
	size_t pages = between(16, 64);
	do {
		work();
		grow_space(pages * 4096);
	} while (next());
}

OUT_OF_LINE static void grow_fds(void)
{
	if (open("/dev/null", O_RDONLY) < 0)
		fail("open");
}

static void leak_fd(void)
{
	do {
		work();
		grow_fds();
	} while (next());
}

OUT_OF_LINE static void grow_shm(size_t size)
{
	char name[64];
	static int number;
	snprintf(name, sizeof name, "/memtrace-growth-%d-%d", getpid(), number++);
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		fail("shm_open");
	touched(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), size);
	close(fd);
	/* The mapping keeps it. A run that is killed leaves nothing behind. */
	shm_unlink(name);
}

static void leak_shm(void)
{
	size_t pages = between(4, 16);
	do {
		work();
		grow_shm(pages * 4096);
	} while (next());
}

/* Segments that are no longer mapped, whose descriptors stay. */
static void memfd(void)
{
	size_t size = between(16, 64) * 4096;
	do {
		int fd = memfd_create("growth", 0);
		if (fd < 0 || ftruncate(fd, (off_t)size))
			fail("memfd_create");
		void *p = touched(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), size);
		munmap(p, size);
		work();
	} while (next());
}

/* A thread's arena: many blocks, a small one above them, and only that one stays. */
static void *pinned_arena(void *count)
{
	size_t n = (size_t)count;
	void **blocks = malloc(n * sizeof *blocks);
	double end = seconds * 0.3;
	for (size_t i = 0; i < n; i++) {
		blocks[i] = touched(malloc(2000), 2000);
		while (i % 100 == 0 && now() < end * (double)i / (double)n)
			usleep(10000);
	}
	void *pin = malloc(64);
	for (size_t i = 0; i < n; i++)
		free(blocks[i]);
	free(blocks);
	return pin;
}

static void retention(void)
{
	pthread_t threads[12];
	size_t count = between(3000, 6000);
	for (int i = 0; i < 12; i++)
		if (pthread_create(&threads[i], NULL, pinned_arena, (void *)count))
			fail("pthread_create");
	do
		work();
	while (next());
}

static void *idle(void *p)
{
	p = pinned_arena(p);
	while (now() < seconds)
		usleep(10000);
	return p;
}

/* One more arena per thread, with nothing live but the pin. */
static void arenas(void)
{
	size_t count = between(1000, 3000), made = 0;
	pthread_t thread;
	do {
		for (; made < 14 && now() > seconds * (double)made / 14; made++)
			if (pthread_create(&thread, NULL, idle, (void *)count))
				fail("pthread_create");
		work();
	} while (next());
}

#define HUGE (2UL << 20)

static char *huge_area(size_t bytes)
{
	char *p = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	return (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
}

static void thp(void)
{
	size_t areas = between(100, 160);
	char *p = huge_area(areas * HUGE);
	madvise(p, areas * HUGE, MADV_HUGEPAGE);
	do {
		size_t due = (size_t)(now() / seconds * (double)areas);
		for (size_t i = 0; i < due && i < areas; i++)
			p[i * HUGE] = 1;
		work();
	} while (next());
}

static void madv_free(void)
{
	size_t areas = between(30, 60);
	char *p = huge_area(areas * HUGE);
	madvise(p, areas * HUGE, MADV_NOHUGEPAGE);
	size_t done = 0;
	do {
		size_t due = (size_t)(now() / seconds * (double)areas * 8);
		for (; done < due && done < areas * 8; done++) {
			memset(p + done * (HUGE / 8), 1, HUGE / 8);
			madvise(p + done * (HUGE / 8), HUGE / 8, MADV_FREE);
		}
		work();
	} while (next());
}

static void page_cache(void)
{
	size_t pages = between(10000, 20000);
	int fd = open(folder, O_TMPFILE | O_RDWR, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(pages * 4096)))
		fail("file");
	volatile char *p = mmap(NULL, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	size_t done = 0;
	do {
		size_t due = (size_t)(now() / seconds * (double)pages);
		for (; done < due && done < pages; done++)
			(void)p[done * 4096];
		work();
	} while (next());
}

/* A child writes to pages that its parent filled. */
static void copy_on_write(void)
{
	size_t pages = between(6000, 12000), done = 0;
	char *p = touched(malloc(pages * 4096), pages * 4096);
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	do {
		work();
		if (child)
			continue;
		size_t due = (size_t)(now() / seconds * (double)pages);
		for (; done < due && done < pages; done++)
			p[done * 4096] = 2;
	} while (next());
	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
}

/* Each child has memory of its own. None ends before its parent. */
static void leak_process(void)
{
	size_t size = between(1 << 20, 4 << 20), steps = between(20, 50), step = 0;
	do {
		work();
		if (step++ % steps)
			continue;
		pid_t child = fork();
		if (child < 0)
			fail("fork");
		if (child)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		touched(malloc(size), size);
		for (;;)
			pause();
	} while (next());
}

static void *nothing(void *p) { return p; }

static void thread_churn(void)
{
	do {
		pthread_t threads[8];
		size_t count = between(2, 8);
		for (size_t i = 0; i < count; i++)
			if (pthread_create(&threads[i], NULL, nothing, NULL))
				fail("pthread_create");
		for (size_t i = 0; i < count; i++)
			pthread_join(threads[i], NULL);
		work();
	} while (next());
}

struct entry {
	struct entry *next;
	uint64_t key;
	char text[];
};

#define BUCKETS 65536
static struct entry *buckets[BUCKETS];

OUT_OF_LINE static struct entry *grow_cache(uint64_t key, size_t size)
{
	struct entry *entry = touched(malloc(sizeof *entry + size), sizeof *entry + size);
	entry->key = key;
	entry->next = buckets[key % BUCKETS];
	buckets[key % BUCKETS] = entry;
	return entry;
}

static int cached(uint64_t key)
{
	for (struct entry *e = buckets[key % BUCKETS]; e; e = e->next)
		if (e->key == key)
			return 1;
	return 0;
}

/* Full at 40 % of the time; then the oldest goes for each new one. */
static void cache_lru(void)
{
	size_t limit = between(1500, 4000), size = between(500, 2000), head = 0, held = 0;
	struct entry **ring = calloc(limit, sizeof *ring);
	double made = 0, rate = (double)limit / (0.4 * seconds);
	do {
		for (; made < rate * now(); made++) {
			if (held == limit)
				free(ring[head]);
			else
				held++;
			ring[head] = touched(malloc(size), size);
			head = (head + 1) % limit;
		}
		work();
	} while (next());
}

/* Ever rarer new keys. */
static void cache_zipf(void)
{
	size_t size = between(500, 2000);
	do {
		for (int i = 0; i < 300; i++) {
			uint64_t key = (uint64_t)pow(1.0 / (1.0 - uniform()), 1.1);
			if (!cached(key))
				grow_cache(key, size);
		}
		work();
	} while (next());
}

static void cache_unbounded(void)
{
	size_t size = between(500, 2000);
	uint64_t key = 0;
	do {
		for (int i = 0; i < 5; i++)
			grow_cache(key++, size);
		work();
	} while (next());
}

/* A large block every now and then. */
static void step(void)
{
	size_t size = between(500, 1500) * 1024;
	double due = 0, every = seconds / (double)between(18, 30);
	do {
		if (now() >= due) {
			grow_heap(size);
			due += every;
		}
		work();
	} while (next());
}

static void hold(void **blocks, size_t *held, size_t wanted, size_t size)
{
	for (; *held < wanted; ++*held)
		blocks[*held] = touched(malloc(size), size);
	for (; *held > wanted; --*held)
		free(blocks[*held - 1]);
}

#define HELD 20000

/* A load that fluctuates around its mean. */
static void ar1(void)
{
	static void *blocks[HELD];
	size_t held = 0, size = between(500, 3000);
	double load = normal() * 2.3;
	do {
		load = 0.9 * load + normal();
		double wanted = 4000 + 300 * load;
		hold(blocks, &held, wanted < 0 ? 0 : wanted > HELD ? HELD : (size_t)wanted, size);
		work();
	} while (next());
}

OUT_OF_LINE static void *grow_table(size_t size) { return touched(malloc(size), size); }

/* The size of a table follows a random walk: whatever was added may go. */
static void walk(void)
{
	static void *table[HELD];
	size_t held = 0, start = between(2000, 5000), size = between(500, 3000);
	double wanted = (double)start;
	do {
		for (int i = 0; i < 5 && held > start / 2; i++) {
			size_t at = between(0, held - 1);
			free(table[at]);
			table[at] = table[--held];
		}
		while ((double)held < wanted && held < HELD)
			table[held++] = grow_table(size);
		while ((double)held > wanted && held > 0) {
			size_t at = between(0, held - 1);
			free(table[at]);
			table[at] = table[--held];
		}
		wanted += normal() * (double)start / 200;
		wanted = wanted < 100 ? 100 : wanted;
		work();
	} while (next());
	while (held > 0)
		free(table[--held]);
}

/* Sessions come and go; how many there are at a time follows the hour of the day. */
static void day(void)
{
	static struct { void *block; double until; } sessions[HELD];
	size_t held = 0, size = between(500, 3000);
	double top = (double)between(2000, 5000), phase = uniform(), period = seconds * (0.6 + 1.9 * uniform());
	double life = seconds / 30;
	do {
		for (size_t i = 0; i < held; i++) {
			if (sessions[i].until > now())
				continue;
			free(sessions[i].block);
			sessions[i--] = sessions[--held];
		}
		double wanted = top * (1.1 + sin(6.2832 * (now() / period + phase)));
		while ((double)held < wanted && held < HELD) {
			sessions[held].block = grow_table(size);
			sessions[held++].until = now() + life * (0.5 + uniform());
		}
		work();
	} while (next());
	while (held > 0)
		free(sessions[--held].block);
}

/* The requested keys are drawn from a limited set, so that new ones become rare. */
static void cache_random(void)
{
	size_t size = between(500, 2000), keys = between(3000, 8000), asked = 0;
	double often = (double)keys / (seconds * (0.2 + 0.6 * uniform()));
	do {
		for (; (double)asked < often * now(); asked++) {
			uint64_t key = between(1, keys);
			if (!cached(key))
				grow_cache(key, size);
		}
		work();
	} while (next());
}

/* A batch every now and then: its memory is freed before the next one, or never. */
static void bursts(double every, int keeps)
{
	void *blocks[50];
	size_t size = between(3000, 5000);
	double due = every * uniform();
	int held = 0;
	do {
		if (now() >= due) {
			while (held > 0 && !keeps)
				free(blocks[--held]);
			for (held = 0; held < 50; held++)
				blocks[held] = grow_heap(size);
			due += every;
		}
		if (!keeps && now() >= due - every / 2)
			while (held > 0)
				free(blocks[--held]);
		work();
	} while (next());
}

static void bursts_freed(void) { bursts(seconds / (double)between(4, 12), 0); }

/* Some 200 KB every now and then: in a minute every 10 s. */
static void bursts_kept(void) { bursts(seconds / 6, 1); }

static void come_and_go(size_t size, size_t top, double period)
{
	static void *blocks[HELD];
	size_t held = 0;
	do {
		double phase = fmod(now(), period) / period;
		hold(blocks, &held, (size_t)((double)top * phase), size);
		work();
	} while (next());
}

/* The allocator keeps the most that was ever needed. */
static void sawtooth(void)
{
	size_t size = between(500, 3000), top = between(3000, 8000);
	come_and_go(size, top, seconds / (double)between(7, 12));
}

/* Blocks with mappings of their own, so that the resident memory comes and goes too. The allocator's
 * cache grows on a busy machine, where some teeth miss their tops; here each tooth is independent of the last. */
static void sawtooth_mapped(void)
{
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	size_t size = between(100, 300) << 10, top = between(30, 80);
	come_and_go(size, top, seconds / (double)between(25, 40));
}

static void warm_up(void)
{
	static void *blocks[HELD];
	size_t held = 0, size = between(500, 3000), top = between(3000, 8000);
	double end = seconds * (0.05 + 0.1 * uniform());
	do {
		double part = now() / end;
		hold(blocks, &held, (size_t)((double)top * (part < 1 ? part : 1)), size);
		work();
	} while (next());
}

static void flat(void)
{
	grow_heap(between(1 << 20, 8 << 20));
	do
		work();
	while (next());
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"leak-malloc", leak_malloc},
	{"leak-some", leak_some},
	{"leak-small", leak_small},
	{"leak-shrunk", leak_shrunk},
	{"shrunk", shrunk},
	{"leak-mmap", leak_mmap},
	{"leak-syscall", leak_syscall},
	{"leak-mappings", leak_mappings},
	{"leak-fd", leak_fd},
	{"leak-process", leak_process},
	{"leak-shm", leak_shm},
	{"memfd", memfd},
	{"retention", retention},
	{"arenas", arenas},
	{"thp", thp},
	{"madv-free", madv_free},
	{"page-cache", page_cache},
	{"copy-on-write", copy_on_write},
	{"thread-churn", thread_churn},
	{"cache-lru", cache_lru},
	{"cache-zipf", cache_zipf},
	{"cache-unbounded", cache_unbounded},
	{"step", step},
	{"ar1", ar1},
	{"walk", walk},
	{"day", day},
	{"cache-random", cache_random},
	{"bursts", bursts_freed},
	{"bursts-kept", bursts_kept},
	{"sawtooth", sawtooth},
	{"sawtooth-mapped", sawtooth_mapped},
	{"warm-up", warm_up},
	{"flat", flat},
};

int main(int argc, char **argv)
{
	if (argc < 4)
		return 96;
	seconds = atof(argv[2]);
	state = strtoull(argv[3], NULL, 10) * 0x9E3779B97F4A7C15ULL + 1;
	for (int i = 0; i < 8; i++)
		uniform();
	if (argc > 4)
		folder = argv[4];
	now();
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
		if (!strcmp(argv[1], scenarios[i].name)) {
			scenarios[i].run();
			/* Without giving everything back: that is not the question. */
			_exit(0);
		}
	}
	return 97;
}
