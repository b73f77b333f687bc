/* Maps the file ARGV[1] without reading it, and keeps a block of 1000 bytes every millisecond until it is killed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *volatile kept[100000];

int main(int argc, char **argv) {
    int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) == MAP_FAILED) {
        perror("map");
        return 2;
    }
    puts("ready");
    fflush(stdout);
    for (unsigned number = 0;; number++) {
        kept[number % 100000] = malloc(1000);
        usleep(1000);
    }
}
