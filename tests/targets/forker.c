/* Forks children that allocate and end, one after the other, until it is killed.
 *
 *   forker PROGRESS   a file of 16 bytes: children ended, and this process's pid
 */
#include "site.h"
#include <sys/mman.h>

SITE(forked, malloc(a))

int main(int argc, char **argv) {
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
	if (fd < 0)
		return 96;
	uint64_t *progress = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (progress == MAP_FAILED)
		fail("mmap");
	progress[1] = getpid();
	for (;;) {
		pid_t child = fork();
		if (child == 0)
			_exit(site_forked(NULL, 100, 0) ? 0 : 1);
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			fail("a child");
		__atomic_add_fetch(progress, 1, __ATOMIC_RELAXED);
	}
}
