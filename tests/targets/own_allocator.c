/* An allocator that is found only with `--allocator FILE:own_`. Each function calls
 * another one of its own, as real ones do: no block may count twice, no
 * release be taken for a second one.
 *
 *   own_allocator TRUTH    ends with code 7
 */
#include "site.h"

#define EXPORTED __attribute__((noipa, visibility("default")))

EXPORTED void *own_malloc(size_t size) { return malloc(size); }
EXPORTED void *own_calloc(size_t n, size_t size) {
	void *p = own_malloc(n * size);
	return p ? memset(p, 0, n * size) : p;
}
EXPORTED void own_free(void *p) {
	free(p);
	BARRIER();
}
EXPORTED void own_free_sized(void *p, size_t size) {
	(void)size;
	own_free(p);
	BARRIER();
}
EXPORTED void own_free_aligned_sized(void *p, size_t alignment, size_t size) {
	(void)alignment;
	own_free_sized(p, size);
	BARRIER();
}

SITE(own_malloc, own_malloc(a))
SITE(own_calloc, own_calloc(a, b))

int main(int argc, char **argv) {
	struct block blocks[40];
	for (int i = 0; i < 40; i += 2) {
		blocks[i] = ALLOCATE(own_malloc, NULL, 100 + i, 0, 100 + i);
		blocks[i + 1] = ALLOCATE(own_calloc, NULL, 3, 50, 150);
	}
	for (int i = 0; i < 10; i++) {
		own_free(give(&blocks[i]));
		own_free_sized(give(&blocks[10 + i]), 1);
		own_free_aligned_sized(give(&blocks[20 + i]), 1, 1);
	}
	write_truth(argv[1]);
	return 7;
}
