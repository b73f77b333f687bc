/* Target of `cargo xtask bench`. Says "ready", waits for a byte on stdin (so
 * that a tracer can attach), does its work, prints its measurements, and waits
 * for the end of stdin where the tracer still has something to read.
 *
 *   pairs run PAIRS      malloc(64) and free, PAIRS times: prints ns per pair
 *   pairs hold BLOCKS    BLOCKS blocks of 64 bytes stay outstanding
 *   pairs steady SECONDS 100 sites allocate and free, each every 10 ms
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64, WARM_UP = 20000, SITES = 100 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

/* Keeps the compiler from seeing through a malloc/free pair. */
static void *volatile sink;

static void pairs(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        void *block = malloc(BLOCK);
        sink = block;
        free(block);
    }
}

static void hold(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        sink = malloc(BLOCK);
}

/* Each depth is a call stack of its own, hence a site. */
__attribute__((noinline)) static void at_depth(int depth, void **blocks)
{
    if (depth > 0)
        at_depth(depth - 1, blocks + 1);
    free(*blocks);
    *blocks = malloc(BLOCK);
}

static void steady(uint64_t seconds)
{
    static void *blocks[SITES];
    uint64_t end = now_ns() + seconds * 1000000000u;
    while (now_ns() < end) {
        at_depth(SITES - 1, blocks);
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    uint64_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (count == 0) {
        fprintf(stderr, "usage: pairs run PAIRS | hold BLOCKS | steady SECONDS\n");
        return 2;
    }
    say("ready");
    if (getchar() == EOF)
        return 1;
    if (strcmp(argv[1], "run") == 0) {
        pairs(WARM_UP);
        uint64_t start = now_ns();
        pairs(count);
        printf("%.3f\n", (double)(now_ns() - start) / (double)count);
        fflush(stdout);
    } else if (strcmp(argv[1], "hold") == 0) {
        hold(count);
        say("held");
        while (getchar() != EOF)
            ;
    } else if (strcmp(argv[1], "steady") == 0) {
        steady(count);
        say("done");
    } else {
        return 2;
    }
    return 0;
}
