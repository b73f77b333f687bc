/* Maps executable pages one by one, each apart from the others, and says how long it took for each, in nanoseconds.
 *
 *   many_mappings COUNT file        of the C library
 *   many_mappings COUNT anonymous
 */
#include "site.h"
#include <sys/mman.h>
#include <time.h>

static double seconds(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 96;
	int count = atoi(argv[1]), fd = -1, flags = MAP_PRIVATE | MAP_FIXED;
	Dl_info library;
	if (strcmp(argv[2], "file"))
		flags |= MAP_ANONYMOUS;
	else if (!dladdr(dlsym(RTLD_NEXT, "malloc"), &library) || (fd = open(library.dli_fname, O_RDONLY)) < 0)
		fail("the C library");
	double begun = seconds();
	for (int i = 0; i < count; i++) {
		char *room = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (room == MAP_FAILED || mmap(room, 4096, PROT_READ | PROT_EXEC, flags, fd, 0) == MAP_FAILED)
			fail("mmap");
	}
	printf("%.0f\n", (seconds() - begun) / count * 1e9);
	return 0;
}
