// Maps one file 64,000 times by a path of almost 4 KiB, in folders below ARGV[1], and allocates until it is killed.
#include "site.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { MAPPINGS = 64000, FOLDERS = 14 };

SITE(kept, malloc(a))

int main(int argc, char **argv) {
	char name[251];
	memset(name, 'd', sizeof name - 1);
	name[sizeof name - 1] = 0;
	if (argc != 2 || chdir(argv[1]))
		fail("a folder");
	for (int i = 0; i < FOLDERS; i++)
		if (mkdir(name, 0755) || chdir(name))
			fail("a folder");
	int file = open("f", O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, 3 * 4096))
		fail("a file");
	/* Neighbours differ, so that each stays a mapping of its own. */
	for (int i = 0; i < MAPPINGS; i++)
		if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE, file, i % 3 * 4096) == MAP_FAILED)
			fail("mmap");
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (!site_kept(NULL, 1000, 0))
			fail("malloc");
		usleep(1000);
	}
}
