/* A renderer that takes a page's memory from an arena.
 * The fault: the arena is never reset.
 *
 * arena leak|ok SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 64 << 10 };

struct chunk {
    struct chunk *next;
    size_t used;
    char bytes[CHUNK];
};

struct arena {
    struct chunk *chunks;
};

static int uniform(int from, int to)
{
    return from + rand() % (to - from);
}

static void arena_grow(struct arena *arena)
{
    struct chunk *chunk = malloc(sizeof *chunk); /* allocates */
    if (!chunk)
        abort();
    chunk->next = arena->chunks;
    chunk->used = 0;
    arena->chunks = chunk;
}

static void *arena_take(struct arena *arena, size_t size)
{
    if (!arena->chunks || arena->chunks->used + size > CHUNK)
        arena_grow(arena);
    void *taken = arena->chunks->bytes + arena->chunks->used;
    arena->chunks->used += size;
    return memset(taken, 'a', size);
}

static void arena_reset(struct arena *arena)
{
    while (arena->chunks) {
        struct chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}

static void render_page(struct arena *arena)
{
    char *template = malloc(uniform(20 << 10, 90 << 10));
    if (!template)
        abort();
    template[0] = 't';
    for (int node = uniform(20, 60); node > 0; node--)
        *(char *)arena_take(arena, uniform(16, 160) & ~7) = template[0];
    free(template);
}

int main(int argc, char **argv)
{
    int leaks = argc > 2 && !strcmp(argv[1], "leak");
    srand(argc > 2 ? atoi(argv[2]) : 1);
    struct arena arena = {NULL};
    for (int page = 0;; page++) {
        render_page(&arena);
        if (!leaks) /* the fault */
            arena_reset(&arena);
        if (page == 100)
            puts("rendering"), fflush(stdout);
        nanosleep(&(struct timespec){0, uniform(16, 24) * 1000000}, NULL);
    }
}
