// Two lists that constantly get a new head: nothing else points into them.

#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct node {
    struct node *next;
    long number;
};

static struct node *head;

// Linked by their middles, as the lists of the Linux kernel are.
struct link {
    struct link *next;
};

struct linked {
    long number;
    struct link link;
};

struct owner {
    long unused;
    struct link *first;
};

static struct owner *owner;

static void prepend(long number) {
    struct node *node = malloc(sizeof *node);
    node->next = head;
    node->number = number;
    head = node;
    struct linked *linked = malloc(sizeof *linked);
    linked->number = number;
    linked->link.next = owner->first;
    owner->first = &linked->link;
}

int main(void) {
    owner = calloc(1, sizeof *owner);
    prepend(0);
    printf("oldest %p %p\n", (void *)head, (void *)((char *)owner->first - offsetof(struct linked, link)));
    fflush(stdout);
    struct timespec pause = {.tv_nsec = 100000};
    // Ends by itself if it is not ended.
    for (long number = 1; number < 3000000; number++) {
        prepend(number);
        nanosleep(&pause, NULL);
    }
    return 0;
}
