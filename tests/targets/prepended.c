// A list that constantly gets a new head: nothing else points into it.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct node {
    struct node *next;
    long number;
};

static struct node *head;

static void prepend(long number) {
    struct node *node = malloc(sizeof *node);
    node->next = head;
    node->number = number;
    head = node;
}

int main(void) {
    prepend(0);
    printf("oldest %p\n", (void *)head);
    fflush(stdout);
    struct timespec pause = {.tv_nsec = 100000};
    // Ends by itself if it is not ended.
    for (long number = 1; number < 3000000; number++) {
        prepend(number);
        nanosleep(&pause, NULL);
    }
    return 0;
}
