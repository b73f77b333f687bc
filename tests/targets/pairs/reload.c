/* Labels of metrics, set anew whenever the configuration is read.
 * The fault: the old label is not freed.
 *
 * reload leak|ok SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { METRICS = 200 };

struct metric {
    char *label;
    double value;
};

static struct metric metrics[METRICS];
static int leaks;

static int uniform(int from, int to)
{
    return from + rand() % (to - from);
}

static void set_label(struct metric *metric, const char *text)
{
    if (!leaks) /* the fault */
        free(metric->label);
    metric->label = strdup(text); /* allocates */
    metric->value = 0;
}

static void reload(void)
{
    size_t size = 200 << 10, length;
    char *text = malloc(size);
    if (!text)
        abort();
    memset(text, 'l', size);
    for (int changed = 0; changed < 20; changed++) {
        length = uniform(300, 1500);
        text[length] = '\0';
        set_label(&metrics[uniform(0, METRICS)], text);
        text[length] = 'l';
    }
    free(text);
}

int main(int argc, char **argv)
{
    leaks = argc > 2 && !strcmp(argv[1], "leak");
    srand(argc > 2 ? atoi(argv[2]) : 1);
    for (int metric = 0; metric < METRICS; metric++)
        metrics[metric].label = strdup("none");
    for (int turn = 0;; turn++) {
        reload();
        for (int event = 0; event < 50; event++)
            metrics[uniform(0, METRICS)].value += 1;
        if (turn == 10)
            puts("running"), fflush(stdout);
        nanosleep(&(struct timespec){0, uniform(160, 240) * 1000000}, NULL);
    }
}
