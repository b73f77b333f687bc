// Threads that wait in the kernel in every way, one that is sent signals, and a parent that watches. Prints what any
// of them notices, and at the end the result. A byte on standard input ends it.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int quit[2];
static int events;
static int set;
static int sockets[2];
static atomic_int ready, sent, received, over, children;
static atomic_long words;

static void count(int signal) { (void)signal; received++; }
static void child(int signal) { (void)signal; children++; }

static void check(const char *call, long result) {
    if (result < 0 && errno == EINTR) {
        printf("%s was interrupted\n", call);
        fflush(stdout);
    }
}

static void *in_epoll(void *unused) {
    struct epoll_event event;
    ready++;
    check("epoll_wait", epoll_wait(events, &event, 1, -1));
    return unused;
}
static void *in_epoll_with_mask(void *unused) {
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    sigaddset(&none, SIGRTMIN);
    ready++;
    check("epoll_pwait", epoll_pwait(events, &event, 1, -1, &none));
    return unused;
}
static void *in_poll(void *unused) {
    struct pollfd fd = {quit[0], POLLIN, 0};
    ready++;
    check("poll", poll(&fd, 1, 600000));
    return unused;
}
static void *in_select(void *unused) {
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(quit[0], &fds);
    ready++;
    check("select", select(quit[0] + 1, &fds, 0, 0, 0));
    return unused;
}
static void *in_semop(void *unused) {
    struct sembuf down = {0, -1, 0};
    ready++;
    check("semop", semop(set, &down, 1));
    return unused;
}
static void *in_sigtimedwait(void *unused) {
    sigset_t wanted;
    struct timespec limit = {600, 0};
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    ready++;
    check("sigtimedwait", sigtimedwait(&wanted, 0, &limit));
    return unused;
}
static void *in_recv(void *unused) {
    char byte;
    struct timeval limit = {600, 0};
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ready++;
    check("recv", recv(sockets[0], &byte, 1, 0));
    return unused;
}
static void *in_nanosleep(void *unused) {
    struct timespec some = {0, 1000000};
    ready++;
    while (!over)
        check("nanosleep", nanosleep(&some, 0));
    return unused;
}
static void *busy(void *unused) {
    ready++;
    while (!over)
        words++;
    return unused;
}
static void *signalled(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    ready++;
    while (!over || received != sent)
        words++;
    return unused;
}

static int program(void) {
    void *(*const all[])(void *) = {in_epoll,        in_epoll_with_mask, in_poll,      in_select, in_semop,
                                    in_sigtimedwait, in_recv,            in_nanosleep, busy,      signalled};
    enum { N = sizeof all / sizeof *all };
    pthread_t threads[N];
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, 0);
    signal(SIGRTMIN, count);
    events = epoll_create1(0);
    set = semget(IPC_PRIVATE, 1, 0600);
    if (pipe(quit) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || epoll_ctl(events, EPOLL_CTL_ADD, quit[0], &event))
        return 1;
    for (int i = 0; i < N; i++)
        pthread_create(&threads[i], 0, all[i], 0);
    while (ready != N)
        usleep(100);
    printf("%d\nready\n", getpid());
    fflush(stdout);
    struct pollfd end = {0, POLLIN, 0};
    while (poll(&end, 1, 1) == 0) {
        // Queued, so none is lost without a reason.
        union sigval value = {0};
        if (pthread_sigqueue(threads[N - 1], SIGRTMIN, value) == 0)
            sent++;
    }
    over = 1;
    struct sembuf up = {0, 1, 0};
    semop(set, &up, 1);
    pthread_kill(threads[5], SIGUSR2);
    if (write(quit[1], "x", 1) != 1 || write(sockets[1], "x", 1) != 1)
        return 1;
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], 0);
    semctl(set, 0, IPC_RMID);
    printf("%s signals\n", sent == received ? "all" : "some");
    fflush(stdout);
    return 0;
}

int main(void) {
    int status;
    signal(SIGCHLD, child);
    pid_t pid = fork();
    if (pid == 0)
        _exit(program());
    for (;;) {
        if (waitpid(pid, &status, WUNTRACED | WCONTINUED) == pid) {
            if (WIFEXITED(status))
                break;
            printf("the parent saw status %x\n", status);
        } else if (errno != EINTR) {
            return 1;
        }
    }
    printf("ended with %d after %d signals of children\n", WEXITSTATUS(status), children);
    return 0;
}
