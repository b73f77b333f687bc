/* Does a known number of allocations with every function of the malloc family,
 * in threads, forked and exec'ed children and a library's constructor.
 *
 *   exact run  TRUTH LIBRARY   work, write the truth, end with status 7
 *   exact hold TRUTH LIBRARY   say "ready", await a byte, work, write the truth,
 *                              say "done", await a byte, end with status 0
 *   exact image TRUTH          run by the exec'ed children
 */
#include "site.h"
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>

extern void free_sized(void *, size_t) __attribute__((weak));
extern char **environ;

static void *memalign_out(size_t alignment, size_t size) {
	void *p = NULL;
	return posix_memalign(&p, alignment, size) == 0 ? p : NULL;
}

SITE(malloc, malloc(a))
SITE(calloc, calloc(a, b))
SITE(realloc, realloc(p, a))
SITE(realloc_null, realloc(p, a))
SITE(realloc_failing, realloc(p, a))
SITE(reallocarray, reallocarray(p, a, b))
SITE(posix_memalign, memalign_out(a, b))
SITE(aligned_alloc, aligned_alloc(a, b))
SITE(memalign, memalign(a, b))
SITE(valloc, valloc(a))
SITE(pvalloc, pvalloc(a))
SITE(failing, malloc(a))
SITE(failing_calloc, calloc(a, b))
SITE(sized, malloc(a))
SITE(before_attach, malloc(a))
SITE(thread_0, malloc(a))
SITE(thread_1, calloc(a, b))
SITE(thread_2, realloc(p, a))
SITE(thread_3, memalign_out(a, b))
SITE(producer, malloc(a))
SITE(inherited, malloc(a))
SITE(fork_child, malloc(a))
SITE(quiet_child, malloc(a))
SITE(before_exec, malloc(a))
SITE(image, malloc(a))
TRUTH(constructor) /* of the library; LIBRARY_* below count its work */

/* Volatile, so that the compiler cannot know that the calls must fail. */
static volatile size_t huge = SIZE_MAX / 4;
static const char *self, *truth_path, *library_path;

static void drop(struct block *block) { free(give(block)); }

static void must_fail(void *p) {
	if (p)
		fail("a call that must fail succeeded; the test");
}

/* realloc as the ledger sees it: the old block goes, the new one belongs to
 * the site of the realloc; `realloc(p, 0)` frees or gives a block of 0 bytes,
 * as the allocator likes. */
#define REALLOCATE(name, block, bytes)                                                             \
	do {                                                                                       \
		void *new_ = site_##name((block).p, (bytes), 0);                                   \
		if (!new_ && (bytes) != 0)                                                         \
			fail(#name);                                                               \
		give(&(block));                                                                    \
		(block) = take(&truth_##name, new_, (bytes));                                      \
	} while (0)

/* Is the function that of the allocator in use, and not libc's beside it? */
static int belongs_to_the_allocator(const char *name) {
	Dl_info its, mallocs;
	void *function = dlsym(RTLD_DEFAULT, name);
	return function && dladdr(function, &its) && dladdr(dlsym(RTLD_DEFAULT, "malloc"), &mallocs) &&
	       its.dli_fbase == mallocs.dli_fbase;
}

static struct block kept[64];
static int n_kept;
static void keep(struct block block) { kept[n_kept++] = block; }

static void family(void) {
	struct block b;

	for (int i = 0; i < 20; i++) {
		b = ALLOCATE(malloc, NULL, 100 + i, 0, 100 + i);
		i % 4 ? drop(&b) : keep(b);
	}
	keep(ALLOCATE(malloc, NULL, 0, 0, 0));
	keep(ALLOCATE(malloc, NULL, 3 << 20, 0, 3 << 20)); /* by mmap in glibc */
	free(NULL);

	keep(ALLOCATE(calloc, NULL, 7, 13, 7 * 13));
	b = ALLOCATE(calloc, NULL, 1, 4000, 4000);
	drop(&b);
	must_fail(site_failing_calloc(NULL, huge, 16));
	must_fail(site_failing(NULL, huge * 2, 0));

	b = ALLOCATE(malloc, NULL, 50, 0, 50);
	REALLOCATE(realloc, b, 5000);
	REALLOCATE(realloc, b, 2 << 20);
	REALLOCATE(realloc, b, 4 << 20);
	REALLOCATE(realloc, b, 40);
	must_fail(site_realloc_failing(b.p, huge * 2, 0)); /* and b lives on */
	keep(b);
	b = ALLOCATE(realloc_null, NULL, 60, 0, 60);
	REALLOCATE(realloc, b, 0);
	keep(b);

	b = ALLOCATE(reallocarray, NULL, 3, 30, 90);
	must_fail(site_reallocarray(b.p, huge, 16)); /* overflows, and b lives on */
	keep(b);

	keep(ALLOCATE(posix_memalign, NULL, 64, 640, 640));
	keep(ALLOCATE(posix_memalign, NULL, 8192, 100, 100));
	b = ALLOCATE(posix_memalign, NULL, 4096, 1, 1);
	drop(&b);
	must_fail(site_posix_memalign(NULL, 3, 10));	      /* EINVAL */
	must_fail(site_posix_memalign(NULL, 64, huge * 2)); /* ENOMEM */
	keep(ALLOCATE(aligned_alloc, NULL, 128, 1280, 1280));
	keep(ALLOCATE(memalign, NULL, 256, 77, 77));
	keep(ALLOCATE(valloc, NULL, 33, 0, 33));
	if (belongs_to_the_allocator("pvalloc"))
		keep(ALLOCATE(pvalloc, NULL, 44, 0, 44));
	for (int i = 0; i < 3; i++)

	b = ALLOCATE(sized, NULL, 500, 0, 500);
	belongs_to_the_allocator("free_sized") ? free_sized(give(&b), 500) : drop(&b);
}

enum { THREADS = 4, PER_THREAD = 2000, CROSSING = 3000 };

static struct block slots[THREADS][PER_THREAD];

static void *thread(void *argument) {
	long me = (long)argument;
	for (int i = 0; i < PER_THREAD; i++) {
		size_t size = 16 + (i * 7 + me) % 500;
		struct block b = me == 0   ? ALLOCATE(thread_0, NULL, size, 0, size)
				 : me == 1 ? ALLOCATE(thread_1, NULL, 1, size, size)
				 : me == 2 ? ALLOCATE(thread_2, NULL, size, 0, size)
					   : ALLOCATE(thread_3, NULL, 64, size, size);
		/* A third outstanding, a third freed here, a third by main. */
		if (i % 3 == 1)
			drop(&b);
		slots[me][i] = b;
	}
	return NULL;
}

static struct block crossing[CROSSING];
static int produced;

static void *producer(void *unused) {
	for (int i = 0; i < CROSSING; i++) {
		crossing[i] = ALLOCATE(producer, NULL, 24 + i % 100, 0, 24 + i % 100);
		__atomic_store_n(&produced, i + 1, __ATOMIC_RELEASE);
	}
	return unused;
}

/* Frees while the other allocates, so addresses are soon handed out again. */
static void *consumer(void *unused) {
	for (int i = 0; i < CROSSING; i++) {
		while (__atomic_load_n(&produced, __ATOMIC_ACQUIRE) <= i)
			sched_yield();
		if (i % 10)
			drop(&crossing[i]);
	}
	return unused;
}

static void threads(void) {
	pthread_t ids[THREADS];
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&ids[i], NULL, thread, (void *)i))
			fail("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int j = 2; j < PER_THREAD; j += 3)
			drop(&slots[i][j]);

	if (pthread_create(&ids[0], NULL, producer, NULL) || pthread_create(&ids[1], NULL, consumer, NULL))
		fail("pthread_create");
	pthread_join(ids[0], NULL);
	pthread_join(ids[1], NULL);
}

static void await_child(pid_t child) {
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		fail("a child");
}

static void children(void) {
	static struct block inherited[50];
	for (int i = 0; i < 50; i++)
		inherited[i] = ALLOCATE(inherited, NULL, 1000, 0, 1000);
	char *const arguments[] = {(char *)self, (char *)"image", (char *)truth_path, NULL};

	/* Allocates as the first thing it does, then frees some of its
	 * inherited blocks: neither may touch the parent's. */
	pid_t child = fork();
	if (child == 0) {
		void *first = site_fork_child(NULL, 123, 0);
		forget_truth();
		take(&truth_fork_child, first, 123);
		for (int i = 0; i < 20; i++)
			drop(&inherited[i]);
		for (int i = 0; i < 10; i++) {
			struct block b = ALLOCATE(fork_child, NULL, 200, 0, 200);
			if (i % 2)
				drop(&b);
		}
		write_truth(truth_path);
		_exit(0);
	}
	pid_t quiet = fork();
	if (quiet == 0) {
		void *first = site_quiet_child(NULL, 1, 0);
		forget_truth();
		take(&truth_quiet_child, first, 1);
		write_truth(truth_path);
		_exit(0);
	}
	await_child(child);
	await_child(quiet);
	/* Nothing was allocated between the two forks, so their inherited memory
	 * differs by the blocks that the first one freed. */
	char line[128];
	int n = snprintf(line, sizeof line, "{\"tgid\":%d,\"inherits_less_than\":%d,\"bytes\":%d}\n",
			 child, quiet, 20 * 1000);
	int fd = open(truth_path, O_WRONLY | O_APPEND | O_CLOEXEC);
	write_all(fd, line, n);
	close(fd);

	child = fork();
	if (child == 0) {
		void *first = site_before_exec(NULL, 777, 0);
		forget_truth();
		struct block b = take(&truth_before_exec, first, 777);
		give(&b); /* exec clears it */
		write_truth(truth_path);
		execv(self, arguments);
		_exit(97);
	}
	await_child(child);

	child = vfork();
	if (child == 0) {
		execv(self, arguments);
		_exit(97);
	}
	await_child(child);

	if (posix_spawn(&child, self, NULL, NULL, arguments, environ))
		fail("posix_spawn");
	await_child(child);

	for (int i = 0; i < 10; i++)
		drop(&inherited[i]);
}

static int image(void) {
	for (int i = 0; i < 30; i++) {
		struct block b = ALLOCATE(image, NULL, 321, 0, 321);
		if (i % 3 == 0)
			drop(&b);
	}
	write_truth(truth_path);
	return 0;
}

/* constructor.c: 5 blocks of 100 bytes at load, 2 of them freed at unload. */
static void library(void) {
	void *handle = dlopen(library_path, RTLD_NOW);
	if (!handle)
		fail("dlopen");
	struct block blocks[5];
	for (int i = 0; i < 5; i++)
		blocks[i] = take(&truth_constructor, handle, 100);
	if (dlclose(handle))
		fail("dlclose");
	for (int i = 0; i < 2; i++)
		give(&blocks[i]);
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 96;
	self = "/proc/self/exe";
	truth_path = argv[2];
	if (!strcmp(argv[1], "image"))
		return image();
	library_path = argv[3];

	int hold = !strcmp(argv[1], "hold");
	void *old[10];
	if (hold) {
		for (int i = 0; i < 10; i++)
			old[i] = site_before_attach(NULL, 5555, 0);
		say("ready\n");
		await_byte();
		for (int i = 0; i < 4; i++)
			free(old[i]);
	}
	family();
	threads();
	children();
	library();
	write_truth(truth_path);
	if (!hold)
		return 7;
	say("done\n");
	await_byte();
	return 0;
}
