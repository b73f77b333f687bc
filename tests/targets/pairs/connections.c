/* A server that keeps its connections in an intrusive list.
 * The fault: a connection that times out stays in the list.
 *
 * connections leak|ok SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct link {
    struct link *next, *previous;
};

struct connection {
    struct link link;
    size_t size;
    char buffer[];
};

static struct link open_ones = {&open_ones, &open_ones};
static volatile unsigned checksum;

static int uniform(int from, int to)
{
    return from + rand() % (to - from);
}

static struct connection *open_connection(size_t size)
{
    struct connection *connection = malloc(sizeof *connection + size); /* allocates */
    if (!connection)
        abort();
    connection->size = size;
    memset(connection->buffer, 'c', size);
    connection->link = (struct link){open_ones.next, &open_ones};
    open_ones.next->previous = &connection->link;
    open_ones.next = &connection->link;
    return connection;
}

static void close_connection(struct connection *connection)
{
    connection->link.previous->next = connection->link.next;
    connection->link.next->previous = connection->link.previous;
    free(connection);
}

static void answer(const struct connection *connection)
{
    size_t size = uniform(64 << 10, 128 << 10);
    char *page = malloc(size);
    if (!page)
        abort();
    memset(page, connection->buffer[0], size);
    checksum += page[size / 2];
    free(page);
}

int main(int argc, char **argv)
{
    int leaks = argc > 2 && !strcmp(argv[1], "leak");
    srand(argc > 2 ? atoi(argv[2]) : 1);
    for (int request = 0;; request++) {
        struct connection *connection = open_connection(uniform(300, 8000));
        answer(connection);
        int timed_out = uniform(0, 4) == 0;
        if (!(leaks && timed_out)) /* the fault */
            close_connection(connection);
        if (request == 200)
            puts("serving"), fflush(stdout);
        nanosleep(&(struct timespec){0, uniform(8, 12) * 1000000}, NULL);
    }
}
