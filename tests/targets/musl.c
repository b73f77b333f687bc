/* The malloc family as musl implements it: calloc and the aligned functions
 * call malloc, realloc calls malloc and free, all by their public names.
 *
 *   musl TRUTH    ends with code 7
 */
#include "site.h"
#include <malloc.h>

SITE(malloc, malloc(a))
SITE(calloc, calloc(a, b))
SITE(realloc_grown, realloc(p, a))
SITE(realloc_refused, realloc(p, a))
SITE(memalign, memalign(a, b))
SITE(aligned_alloc, aligned_alloc(a, b))

static volatile size_t huge = SIZE_MAX / 4;

int main(int argc, char **argv) {
	struct block blocks[60];
	for (int i = 0; i < 60; i += 6) {
		blocks[i] = ALLOCATE(malloc, NULL, 10 + i, 0, 10 + i);
		blocks[i + 1] = ALLOCATE(calloc, NULL, 3, 50, 150);
		struct block old = ALLOCATE(malloc, NULL, 40, 0, 40);
		blocks[i + 2] = ALLOCATE(realloc_grown, give(&old), 300000, 0, 300000);
		blocks[i + 3] = ALLOCATE(memalign, NULL, 64, 100, 100);
		blocks[i + 4] = ALLOCATE(aligned_alloc, NULL, 64, 128, 128);
		blocks[i + 5] = ALLOCATE(malloc, NULL, 20, 0, 20);
		if (site_realloc_refused(blocks[i + 5].p, huge, 0))
			fail("a realloc that must fail");
	}
	for (int i = 0; i < 60; i += 2)
		free(give(&blocks[i]));
	write_truth(argv[1]);
	return 7;
}
