/* Maps the file ARGV[1] without reading it, and keeps a block of 1000 bytes every millisecond until it is killed. With a
   further argument, it leads readers of the loader's list of libraries to the file. */
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *volatile kept[100000];

int main(int argc, char **argv) {
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) {
        perror("map");
        return 2;
    }
    for (ElfW(Dyn) *entry = _DYNAMIC; argc > 2 && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_DEBUG) ((struct r_debug *)entry->d_un.d_ptr)->r_map = mapped;
    puts("ready");
    fflush(stdout);
    for (unsigned number = 0;; number++) {
        kept[number % 100000] = malloc(1000);
        usleep(1000);
    }
}
