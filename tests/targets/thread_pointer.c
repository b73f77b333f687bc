/* A thread that uses another thread's variables for some time, as runtimes with threads of their own do: the blocks
 * that it gets then come from the other one's cache.
 *
 *   thread_pointer TRUTH    ends with code 7
 */
#include "site.h"
#include <pthread.h>
#ifdef __x86_64__
#include <asm/prctl.h>
#endif
#include <sys/syscall.h>

/* In one of the lists of small blocks. The first calls are those whose results memtrace compares. */
enum { SIZE = 40, FIRST = 300, BLOCKS = 100, LISTED = 7 };

SITE(own, malloc(a))
SITE(other, malloc(a))

static pthread_barrier_t barrier;
static volatile unsigned long other;

static void *wait_here(void *unused) {
	other = (unsigned long)__builtin_thread_pointer();
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return unused;
}

static void use(unsigned long thread_pointer) {
#if defined(__x86_64__)
	syscall(SYS_arch_prctl, ARCH_SET_FS, thread_pointer);
#elif defined(__aarch64__)
	__asm__ volatile("msr tpidr_el0, %0" : : "r"(thread_pointer) : "memory");
#else
#error "unknown architecture"
#endif
}

int main(int argc, char **argv) {
	struct block listed[LISTED], blocks[BLOCKS];
	pthread_t thread;
	if (argc != 2)
		return 2;
	for (int i = 0; i < FIRST; i++) {
		struct block block = ALLOCATE(own, NULL, SIZE, 0, SIZE);
		free(give(&block));
	}
	for (int i = 0; i < LISTED; i++)
		listed[i] = ALLOCATE(own, NULL, SIZE, 0, SIZE);
	for (int i = 0; i < LISTED; i++)
		free(give(&listed[i]));
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, wait_here, NULL);
	pthread_barrier_wait(&barrier);
	unsigned long own = (unsigned long)__builtin_thread_pointer();
	use(other);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = ALLOCATE(other, NULL, SIZE, 0, SIZE);
	use(own);
	pthread_barrier_wait(&barrier);
	(void)blocks;
	write_truth(argv[1]);
	_exit(7);
}
