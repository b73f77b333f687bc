/* A server that leaks: every answer is put into a cache that nothing ever
 * empties. Runs for about 15 seconds.
 *
 *   cc -g -fno-omit-frame-pointer -o leak examples/leak.c
 *   memtrace record -o leak.mtr -- ./leak && memtrace diagnose leak.mtr
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct answer {
    struct answer *next;
    char text[1000];
};

static struct answer *cache;

/* The leak: 1008 bytes for each request. */
static struct answer *remember_answer(const char *text)
{
    struct answer *answer = malloc(sizeof *answer);
    if (!answer)
        exit(1);
    strncpy(answer->text, text, sizeof answer->text - 1);
    answer->text[sizeof answer->text - 1] = '\0';
    answer->next = cache;
    cache = answer;
    return answer;
}

/* No leak: the buffer is given back. */
static int parse_request(int number)
{
    char *buffer = malloc(4096);
    if (!buffer)
        exit(1);
    int length = snprintf(buffer, 4096, "request %d", number);
    free(buffer);
    return length;
}

static void handle_request(int number)
{
    char text[64];
    snprintf(text, sizeof text, "answer of %d", parse_request(number));
    remember_answer(text);
}

int main(int argc, char **argv)
{
    int requests = argc > 1 ? atoi(argv[1]) : 15000;
    puts("answering requests");
    fflush(stdout);
    for (int number = 0; number < requests; number++) {
        handle_request(number);
        usleep(1000);
    }
    printf("%d requests answered, %ld bytes forgotten\n", requests, 1008L * requests);
    return 0;
}
