/* Allocates and frees in four threads until it is killed.
 *
 *   busy PROGRESS   a file of 16 bytes: rounds done, and this process's pid
 */
#include "site.h"
#include <map>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

SITE(busy, malloc(a))

static uint64_t *progress;

static void work(unsigned seed) {
	std::vector<void *> blocks(200);
	for (;;) {
		for (auto &block : blocks) {
			free(block);
			block = site_busy(NULL, 16 + rand_r(&seed) % 4000, 0);
		}
		std::map<int, std::string> map;
		for (int i = 0; i < 50; i++)
			map[rand_r(&seed) % 100] = std::string(40 + i, 'x');
		__atomic_add_fetch(progress, 1, __ATOMIC_RELAXED);
	}
}

int main(int argc, char **argv) {
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
	if (fd < 0)
		return 96;
	progress = (uint64_t *)mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (progress == MAP_FAILED)
		fail("mmap");
	progress[1] = getpid();
	std::vector<std::thread> threads;
	for (unsigned i = 0; i < 4; i++)
		threads.emplace_back(work, i);
	for (auto &thread : threads)
		thread.join();
}
