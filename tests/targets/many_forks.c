/* Forks children that allocate one block and end, so many of them alive at a time, and says how long it took for
 * each, in nanoseconds.
 *
 *   many_forks CHILDREN ALIVE [MIB MAPPINGS]   with so much memory, and so many mappings
 */
#include "site.h"
#include <sys/mman.h>
#include <time.h>

SITE(forked, malloc(a))

static double seconds(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void await(void) {
	int status;
	if (wait(&status) < 0 || status)
		fail("a child");
}

static void grow(size_t mib, int mappings) {
	char *memory = malloc(mib << 20);
	if (!memory)
		fail("malloc");
	memset(memory, 1, mib << 20);
	/* Neighbours of different protection stay apart. */
	for (int i = 0; i < mappings; i++)
		if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			fail("mmap");
}

int main(int argc, char **argv) {
	if (argc != 3 && argc != 5)
		return 96;
	int children = atoi(argv[1]), alive = atoi(argv[2]);
	if (argc == 5)
		grow(atoi(argv[3]), atoi(argv[4]));
	double begun = seconds();
	for (int i = 0; i < children; i++) {
		if (i >= alive)
			await();
		pid_t child = fork();
		if (child == 0)
			_exit(site_forked(NULL, 100, 0) ? 0 : 1);
		if (child < 0)
			fail("fork");
	}
	for (int i = 0; i < children && i < alive; i++)
		await();
	printf("%.0f\n", (seconds() - begun) / children * 1e9);
	return 0;
}
