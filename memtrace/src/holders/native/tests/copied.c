// A program that looks for traces of a child that it has not made. Prints its number and `ready`, and at the end what
// it has seen: signals, children to wait for, how its calls ended, and how long its sleeps took beyond their time.
// A byte on standard input ends it.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int signals, interrupted, over, early, ready;
static long marks[1024];

static void count(int signal) { (void)signal; signals++; }

static void *sleeps(void *unused) {
    ready++;
    while (!over) {
        struct timespec some = {0, 20000000}, begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        if (nanosleep(&some, &some)) interrupted++;
        clock_gettime(CLOCK_MONOTONIC, &ended);
        long took = (ended.tv_sec - begun.tv_sec) * 1000000000 + ended.tv_nsec - begun.tv_nsec;
        if (took < 20000000) early++;
    }
    return unused;
}

int main(void) {
    char byte;
    int status;
    pthread_t thread;
    for (int i = 1; i < 64; i++)
        if (i != SIGKILL && i != SIGSTOP) signal(i, count);
    for (int i = 0; i < 1024; i++) marks[i] = i;
    pthread_create(&thread, 0, sleeps, 0);
    while (!ready) usleep(100);
    printf("marks 0x%lx\nready\n", (long)marks);
    fflush(stdout);
    long result = read(0, &byte, 1);
    printf("read returned %ld\n", result);
    over = 1;
    pthread_join(thread, 0);
    printf("%d signals, %d interrupted, %d too early\n", signals, interrupted, early);
    for (int all = 0; all < 2; all++) {
        long waited = waitpid(-1, &status, WNOHANG | (all ? __WALL : 0));
        printf("waitpid: %ld %s\n", waited, strerror(errno));
    }
    for (int i = 0; i < 1024; i++)
        if (marks[i] != i) printf("mark %d is %ld\n", i, marks[i]);
    return 0;
}
