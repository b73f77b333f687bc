/* Blocks that live for a while, one after the other. Prints the shortest and the longest time, nanoseconds. */
#include "site.h"
#include <time.h>

enum { BLOCKS = 20, WHILE_NS = 50 * 1000 * 1000 };

SITE(lived, malloc(a))

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(void) {
	long shortest = 1L << 62, longest = 0;
	for (int i = 0; i < BLOCKS; i++) {
		long before = now();
		struct block block = ALLOCATE(lived, NULL, 100, 0, 100);
		long from = now();
		nanosleep(&(struct timespec){.tv_nsec = WHILE_NS}, NULL);
		long to = now();
		free(give(&block));
		long after = now();
		if (to - from < shortest)
			shortest = to - from;
		if (after - before > longest)
			longest = after - before;
	}
	char line[64];
	write_all(1, line, snprintf(line, sizeof line, "lived %ld %ld\n", shortest, longest));
	return 0;
}
