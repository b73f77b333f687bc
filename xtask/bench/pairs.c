/* Target of `cargo xtask bench`. Says "ready", waits for a byte on stdin (so
 * that a tracer can attach), does its work, prints its measurements, and waits
 * for the end of stdin where the tracer still has something to read.
 *
 *   pairs run PAIRS [DEPTH [THREADS [CHILDREN]]]
 *                        malloc(64) and free, PAIRS times in each thread, DEPTH
 *                        frames below the thread's own, while CHILDREN forked
 *                        processes wait: prints ns per pair
 *   pairs realloc CHAINS malloc, 7 times realloc, and free: prints ns per chain
 *   pairs hold BLOCKS    BLOCKS blocks of 64 bytes stay live
 *   pairs steady SECONDS 100 sites allocate and free, each every 10 ms
 */
#include <pthread.h>
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

static void chains(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        void *block = malloc(BLOCK);
        for (int size = 2; size <= 8; size++) {
            sink = block;
            block = realloc(block, (size_t)size * BLOCK * 4);
        }
        sink = block;
        free(block);
    }
}

/* Calls itself until the stack is deep enough. */
__attribute__((noinline)) static void deeper(int depth, uint64_t count)
{
    if (depth > 0)
        deeper(depth - 1, count);
    else
        pairs(count);
    /* No tail call. */
    sink = (void *)count;
}

struct loop {
    int depth;
    uint64_t count;
    double ns;
};

static void *timed(void *argument)
{
    struct loop *loop = argument;
    deeper(loop->depth, WARM_UP);
    uint64_t start = now_ns();
    deeper(loop->depth, loop->count);
    loop->ns = (double)(now_ns() - start) / (double)loop->count;
    return NULL;
}

/* The mean over threads. */
static double in_threads(int threads, int depth, uint64_t count)
{
    pthread_t ids[threads];
    struct loop loops[threads];
    double sum = 0;
    for (int i = 0; i < threads; i++) {
        loops[i] = (struct loop){.depth = depth, .count = count};
        if (i > 0 && pthread_create(&ids[i], NULL, timed, &loops[i]) != 0)
            exit(1);
    }
    timed(&loops[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++)
        sum += loops[i].ns / threads;
    return sum;
}

static void hold(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        sink = malloc(BLOCK);
}

/* They end with this process. */
static void fork_children(int count)
{
    int ends[2];
    char byte;
    if (pipe(ends) != 0)
        exit(1);
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            exit(1);
        if (child == 0) {
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) != 0);
        }
    }
    close(ends[0]);
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
    uint64_t count = argc >= 3 ? strtoull(argv[2], NULL, 10) : 0;
    int depth = argc >= 4 ? atoi(argv[3]) : 0;
    int threads = argc >= 5 ? atoi(argv[4]) : 1;
    int children = argc >= 6 ? atoi(argv[5]) : 0;
    if (count == 0 || depth < 0 || threads < 1 || children < 0) {
        fprintf(stderr, "usage: pairs run PAIRS [DEPTH [THREADS [CHILDREN]]] | realloc CHAINS | "
                        "hold BLOCKS | steady SECONDS\n");
        return 2;
    }
    fork_children(children);
    say("ready");
    if (getchar() == EOF)
        return 1;
    if (strcmp(argv[1], "run") == 0) {
        printf("%.3f\n", in_threads(threads, depth, count));
        fflush(stdout);
    } else if (strcmp(argv[1], "realloc") == 0) {
        chains(WARM_UP);
        uint64_t start = now_ns();
        chains(count);
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
