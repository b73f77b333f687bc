/* Maps a file that others truncate and rewrite meanwhile, as `cp new.so old.so` does.
 *
 *   rewritten FILE TRUTH
 */
#include "site.h"
#include <sys/mman.h>

enum { ROUNDS = 300, PAGES = 16 };

TRUTH(malloc)

/* Calls malloc itself: a stack that ends early has only this frame. */
OUT_OF_LINE static void *site_malloc(void *p, size_t a, size_t b) {
	(void)p, (void)b;
	void *result = malloc(a);
	BARRIER();
	return result;
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 96;
	int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail("open");
	for (int i = 0; i < ROUNDS; i++) {
		/* Mapped, and never touched. */
		void *code = mmap(NULL, PAGES * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		if (code == MAP_FAILED)
			fail("mmap");
		ALLOCATE(malloc, NULL, 100, 0, 100);
		munmap(code, PAGES * 4096);
	}
	write_truth(argv[2]);
	return 7;
}
