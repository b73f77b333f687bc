// Starts or loads each file of a folder in a process of its own, and keeps 100 blocks of 1000 bytes.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char *volatile kept[100];

// What the loader refuses is mapped all the same.
static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library) {
        int (*compress)(char *, unsigned long *, const char *, unsigned long) = dlsym(library, "compress");
        char out[256];
        unsigned long length = sizeof out;
        if (compress) compress(out, &length, "abcabcabc", 9);
        return;
    }
    int file = open(path, O_RDONLY);
    struct stat found;
    if (file < 0 || fstat(file, &found)) return;
    mmap(NULL, found.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    free(malloc(10));
}

__attribute__((noinline)) static void site_kept(void) {
    for (int i = 0; i < 100; i++) kept[i] = malloc(1000);
}

int main(int argc, char **argv) {
    if (argc < 2 || chdir(argv[1])) return 3;
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) return 3;
    site_kept();
    DIR *folder = opendir(".");
    struct dirent *entry;
    int number = 0;
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        number++;
        if (fork() == 0) {
            // A mutant may do anything but harm others, or for long.
            close(0);
            if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(3);
            alarm(2);
            char path[300];
            snprintf(path, sizeof path, "./%s", entry->d_name);
            if (strncmp(entry->d_name, "program", 7) == 0)
                execl(path, path, "-c", "x=1; for i in 1 2 3; do x=$x$i; done", NULL);
            else
                load(path);
            _exit(0);
        }
        wait(NULL);
    }
    printf("%d\n", number);
    return 0;
}
