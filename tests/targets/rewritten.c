/* Maps a file while another thread truncates and rewrites it, as `cp new.so old.so` does.
 *
 *   rewritten FILE TRUTH   the file is this program's own copy of a library
 */
#include "site.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { ROUNDS = 100, PAGES = 16 };

SITE(malloc, malloc(a))

static const char *path;
static char *content;
static size_t size;
static atomic_int over;

static void *rewrite(void *none) {
	(void)none;
	while (!over) {
		int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
		if (fd < 0)
			fail("open for writing");
		for (size_t at = 0; at < size; at += 65536) {
			size_t n = size - at < 65536 ? size - at : 65536;
			write_all(fd, content + at, n);
		}
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 96;
	path = argv[1];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat))
		fail("open");
	size = stat.st_size;
	content = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (content == MAP_FAILED || read(fd, content, size) != (ssize_t)size)
		fail("read");
	pthread_t thread;
	if (pthread_create(&thread, NULL, rewrite, NULL))
		fail("pthread_create");
	for (int i = 0; i < ROUNDS; i++) {
		/* Mapped, and never touched. */
		void *code = mmap(NULL, PAGES * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		if (code == MAP_FAILED)
			fail("mmap");
		ALLOCATE(malloc, NULL, 100, 0, 100);
		munmap(code, PAGES * 4096);
	}
	over = 1;
	pthread_join(thread, NULL);
	write_truth(argv[2]);
	return 7;
}
