/* A parser of messages.
 * The fault: the body is not freed when the message is malformed.
 *
 * parser leak|ok SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int leaks;
static volatile unsigned checksum;

static int uniform(int from, int to)
{
    return from + rand() % (to - from);
}

static char *buffer_of(size_t size)
{
    char *buffer = malloc(size);
    if (!buffer)
        abort();
    return buffer;
}

static char *read_body(size_t size)
{
    char *body = malloc(size); /* allocates */
    if (!body)
        abort();
    memset(body, 'b', size);
    body[size - 1] = uniform(0, 12) ? '}' : '?';
    return body;
}

static int handle_message(void)
{
    size_t size = uniform(300, 16 << 10);
    char *body = read_body(size);
    size_t tokens_size = uniform(4 << 10, 96 << 10);
    char *tokens = buffer_of(tokens_size);
    memset(tokens, body[0], tokens_size);
    checksum += tokens[tokens_size / 2];
    free(tokens);
    if (body[size - 1] != '}') {
        if (!leaks) /* the fault */
            free(body);
        return -1;
    }
    free(body);
    return 0;
}

int main(int argc, char **argv)
{
    leaks = argc > 2 && !strcmp(argv[1], "leak");
    srand(argc > 2 ? atoi(argv[2]) : 1);
    unsigned bad = 0;
    for (int message = 0;; message++) {
        bad += handle_message() < 0;
        if (message == 200)
            printf("parsing, %u bad\n", bad), fflush(stdout);
        nanosleep(&(struct timespec){0, uniform(7, 10) * 1000000}, NULL);
    }
}
