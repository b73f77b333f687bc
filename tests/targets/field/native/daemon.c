// A daemon in C, with the faults that such programs have.
//
// daemon leak|ok SEED FAULT
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int leaks;

static unsigned uniform(unsigned from, unsigned to)
{
    return from + rand() % (to - from + 1);
}

// A list of requests; only the newest are read.
struct request {
    struct request *next;
    char body[4000];
};
static struct request *history;

static void remember(unsigned count)
{
    struct request *request = malloc(sizeof *request); // allocates: remembered
    memset(request->body, count, sizeof request->body);
    request->next = history;
    history = request;
    if (!leaks) {
        history = request->next;
        free(request);
    }
}

// The error path forgets the name and the message.
static void error_path(unsigned count)
{
    char host[64], *message = NULL;
    snprintf(host, sizeof host, "host-%u.example.org", count);
    for (int try = 0; try < 8; try++) {
        char *name = strdup(host); // allocates: error_path
        if (asprintf(&message, "cannot reach %s: %0*d", name, 500, try) < 0) // allocates: error_path
            abort();
        if (leaks && try < 7)
            continue;
        free(name);
        free(message);
    }
}

// Uploads that are too short stay mapped.
static void short_uploads(unsigned count)
{
    size_t size = 64 << 10, received = count % 4 ? size : size / 2;
    char *buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // allocates: short_uploads
    if (buffer == MAP_FAILED)
        abort();
    memset(buffer, count, received);
    if (received == size || !leaks)
        munmap(buffer, size);
}

// Segments of a file are mapped for each query.
static void file_segments(unsigned count)
{
    static volatile unsigned sum;
    int file = open("/proc/self/exe", O_RDONLY);
    char *segment = mmap(NULL, 16384, PROT_READ, MAP_PRIVATE, file, 0); // allocates: file_segments
    if (segment == MAP_FAILED)
        abort();
    for (int i = 0; i < 16384; i += 1024)
        sum += segment[i];
    close(file);
    if (!leaks || count % 2)
        munmap(segment, 16384);
}

// A thread for each request, which is never joined.
static void *answer(void *argument)
{
    volatile char page[24000];
    memset((char *)page, 1, sizeof page);
    return argument;
}

static void thread_per_request(unsigned count)
{
    pthread_t thread;
    if (count % 4)
        return;
    if (pthread_create(&thread, NULL, answer, NULL)) // allocates: thread_per_request
        abort();
    if (!leaks)
        pthread_join(thread, NULL);
}

// Filters of users are compiled and not freed.
static void filters(unsigned count)
{
    regex_t filter;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "^user-%u-(a|b|c)+[0-9]{2}$", count);
    if (count % 4 || regcomp(&filter, pattern, REG_EXTENDED)) // allocates: filters
        return;
    regexec(&filter, "user-1-a00", 0, NULL, 0);
    if (!leaks)
        regfree(&filter);
}

// A folder is read for each request and not closed.
static void folders(unsigned count)
{
    if (count % 4)
        return;
    DIR *folder = opendir("/usr/bin"); // allocates: folders
    if (!folder)
        abort();
    readdir(folder);
    if (!leaks)
        closedir(folder);
}

// A table of sessions by number; its chains only get longer.
struct session {
    struct session *next;
    unsigned number;
    char *user;
};
static struct session *table[256];

static void log_in(unsigned count)
{
    for (int i = 0; i < 10; i++) {
        struct session *session = calloc(1, sizeof *session); // allocates: sessions
        session->number = count * 10 + i;
        session->user = malloc(uniform(200, 800)); // allocates: sessions
        memset(session->user, 'u', 200);
        struct session **chain = &table[session->number % 256];
        session->next = *chain;
        *chain = session;
        if (!leaks) {
            *chain = session->next;
            free(session->user);
            free(session);
        }
    }
}

// Variables of the environment are set by a library call that keeps each.
static void publish(unsigned count)
{
    char name[64], value[2100];
    memset(value, 'v', sizeof value);
    value[uniform(1000, 2000)] = 0;
    snprintf(name, sizeof name, "REQUEST_%u", leaks ? count : 0);
    setenv(name, leaks ? value : "1", 1); // allocates: environment
}

// Not leaks: the last messages, full before anything attaches.
static void ring(unsigned count)
{
    static char *last[1200];
    for (unsigned slot = count; slot < (count == 1 ? 1201 : count + 1); slot++) {
        free(last[slot % 1200]);
        last[slot % 1200] = malloc(uniform(10000, 16000));
        memset(last[slot % 1200], count, 10000);
    }
}

// Not leaks: a burst each five seconds, between whose blocks stay those of a bounded table.
static void bursts(unsigned count)
{
    static char *scratch[5000], *kept[1000];
    static unsigned next;
    if (count % 250 != 50)
        return;
    for (int i = 0; i < 5000; i++) {
        scratch[i] = malloc(uniform(1000, 3000));
        memset(scratch[i], 1, 1000);
        if (i % 5 == 0) {
            free(kept[next % 1000]);
            kept[next++ % 1000] = malloc(100);
        }
    }
    for (int i = 0; i < 5000; i++)
        free(scratch[i]);
}

// Not leaks: threads of a pool get their arenas one after another.
static void *pool_thread(void *first)
{
    free(first);
    for (;;) {
        char *blocks[50];
        for (int i = 0; i < 50; i++)
            blocks[i] = memset(malloc(5000), 1, 5000);
        for (int i = 0; i < 50; i++)
            free(blocks[i]);
        usleep(50000);
    }
    return first;
}

static void arenas(unsigned count)
{
    pthread_t thread;
    if (count % 200 == 0 && count < 2000 && pthread_create(&thread, NULL, pool_thread, malloc(32)) == 0)
        pthread_detach(thread);
}

// Each request is appended to a log that is never written out.
static char *text_of_log;
static size_t length_of_log;

static void append_to_log(unsigned count)
{
    size_t more = uniform(3000, 9000);
    text_of_log = realloc(text_of_log, length_of_log + more); // allocates: log
    memset(text_of_log + length_of_log, 'l', more);
    length_of_log = leaks ? length_of_log + more : 0;
}

static const struct {
    const char *name;
    void (*handle)(unsigned);
} FAULTS[] = {
    { "remembered", remember }, { "error_path", error_path }, { "short_uploads", short_uploads },
    { "file_segments", file_segments }, { "thread_per_request", thread_per_request }, { "filters", filters },
    { "folders", folders }, { "sessions", log_in }, { "environment", publish },
    { "log", append_to_log }, { "ring", ring }, { "bursts", bursts }, { "arenas", arenas },
};

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    leaks = !strcmp(argv[1], "leak");
    srand(atoi(argv[2]));
    struct rlimit files = { 50000, 50000 };
    setrlimit(RLIMIT_NOFILE, &files);
    unsigned fault = 0, limit = argc > 4 ? atoi(argv[4]) : -1u;
    while (strcmp(FAULTS[fault].name, argv[3]))
        if (++fault == sizeof FAULTS / sizeof *FAULTS)
            return 2;
    for (unsigned count = 1; count < limit; count++) {
        FAULTS[fault].handle(count);
        char *reply = malloc(uniform(1000, 9000));
        memset(reply, 'r', 1000);
        free(reply);
        if (count == 200)
            puts("serving"), fflush(stdout);
        if (limit == -1u)
            usleep(uniform(15000, 25000));
    }
}
