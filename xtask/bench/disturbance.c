/* Target of `cargo xtask bench`: operations that memtrace does not count, but may slow down. Says "ready",
 * waits for a byte on stdin, and prints ns for each kind of event, one line each, in this order.
 *
 *   disturbance SIGNALS THREADS FORKS EXECS
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static volatile sig_atomic_t handled;

static void on_signal(int signal)
{
    (void)signal;
    handled++;
}

/* To the thread itself, so it is handled before the call returns. */
static void send_signal(void)
{
    pthread_kill(pthread_self(), SIGURG);
}

static void *nothing(void *argument)
{
    return argument;
}

static void start_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
        _exit(1);
}

static void await(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        _exit(1);
}

static void start_process(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    await(child);
}

static void start_program(void)
{
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(2);
    }
    await(child);
}

static void measure(void (*event)(void), const char *count)
{
    int times = atoi(count);
    uint64_t start = now_ns();
    for (int i = 0; i < times; i++)
        event();
    printf("%.1f\n", (double)(now_ns() - start) / times);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    signal(SIGURG, on_signal);
    puts("ready");
    fflush(stdout);
    getchar();
    measure(send_signal, argv[1]);
    if (handled != atoi(argv[1]))
        return 3;
    measure(start_thread, argv[2]);
    measure(start_process, argv[3]);
    measure(start_program, argv[4]);
    return 0;
}
