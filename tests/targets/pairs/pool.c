/* Sessions from a pool of their own, which grows by slabs.
 * The fault: a session that is cancelled does not go back to the pool.
 *
 * pool leak|ok SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IN_SLAB = 32, OPEN = 100 };

struct session {
    struct session *next_free;
    char state[504];
};

static struct session *free_sessions;

static int uniform(int from, int to)
{
    return from + rand() % (to - from);
}

static void pool_grow(void)
{
    struct session *slab = malloc(IN_SLAB * sizeof *slab); /* allocates */
    if (!slab)
        abort();
    for (int i = 0; i < IN_SLAB; i++) {
        slab[i].next_free = free_sessions;
        free_sessions = &slab[i];
    }
}

static struct session *pool_get(void)
{
    if (!free_sessions)
        pool_grow();
    struct session *session = free_sessions;
    free_sessions = session->next_free;
    memset(session->state, 's', sizeof session->state);
    return session;
}

static void pool_put(struct session *session)
{
    session->next_free = free_sessions;
    free_sessions = session;
}

static void serve(struct session *session)
{
    char *message = malloc(uniform(500, 30000));
    if (!message)
        abort();
    message[0] = session->state[0];
    session->state[1] = message[0];
    free(message);
}

int main(int argc, char **argv)
{
    int leaks = argc > 2 && !strcmp(argv[1], "leak");
    srand(argc > 2 ? atoi(argv[2]) : 1);
    struct session *open[OPEN] = {NULL};
    for (int request = 0;; request++) {
        int place = uniform(0, OPEN), cancelled = uniform(0, 3) == 0;
        if (open[place] && !(leaks && cancelled)) /* the fault */
            pool_put(open[place]);
        open[place] = pool_get();
        serve(open[place]);
        if (request == 1000)
            puts("serving"), fflush(stdout);
        nanosleep(&(struct timespec){0, uniform(4, 6) * 1000000}, NULL);
    }
}
