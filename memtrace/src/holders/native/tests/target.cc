// Memory that is held in every way, with known addresses: a line "NAME ADDRESS" for each, then "ready".
#include <map>
#include <memory>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unordered_map>

namespace app {
struct Base {
    virtual ~Base() {}
    long number = 1;
};
struct Widget : Base {
    long more[4] = {};
};
struct Second {
    virtual ~Second() {}
};
struct Both : Base, Second {};
} // namespace app

struct Node {
    Node *next;
    long number;
};

char *cache[10];
Node *list;
std::map<int, char *> *tree = new std::map<int, char *>;
std::unordered_map<int, char *> *table = new std::unordered_map<int, char *>;
std::shared_ptr<app::Widget> shared;
app::Base *object;
app::Second *second;
thread_local char *of_thread[4];
static pthread_barrier_t begun;

static void say(const char *name, const void *address) { printf("%s %p\n", name, address); }

__attribute__((noinline)) static void serve(char *volatile *place) {
    char *volatile held[3] = {nullptr, nullptr, nullptr};
    held[1] = *place;
    *place = nullptr;
    pthread_barrier_wait(&begun);
    for (;;)
        pause();
    held[2] = held[1];
}

static void *worker(void *) {
    pthread_setname_np(pthread_self(), "worker-3");
    // From an arena of its own.
    char *block = (char *)malloc(300);
    say("stack", block);
    of_thread[2] = (char *)malloc(301);
    say("thread_local", of_thread[2]);
    char *kept = (char *)malloc(40);
    say("arena_live", kept);
    cache[4] = kept;
    void *freed = malloc(50);
    say("freed_arena", freed);
    free(freed);
    serve(&block);
    return nullptr;
}

static void *spinner(void *) {
    pthread_setname_np(pthread_self(), "spinner");
    char *block = (char *)malloc(777);
    say("register", block);
    fflush(stdout);
    pthread_barrier_wait(&begun);
#ifdef __aarch64__
    register char *held asm("x19") = block;
    asm volatile("1: yield; b 1b" : : "r"(held));
#else
    asm volatile("1: pause; jmp 1b" : : "b"(block));
#endif
    return nullptr;
}

// Leaves a pointer on its stack, deeper than what runs as the thread ends.
static void *leaver(void *) {
    struct {
        char *volatile held[8];
        volatile char between[8192];
    } frame;
    for (volatile char &byte : frame.between)
        byte = 0;
    frame.held[4] = (char *)malloc(303);
    say("ended", frame.held[4]);
    return nullptr;
}

static void blocks() {
    cache[2] = (char *)malloc(100);
    say("global", cache[2]);
    for (long i = 0; i < 1000000; i++) {
        Node *node = (Node *)malloc(sizeof(Node));
        *node = {list, i};
        list = node;
    }
    say("list", list);
    (*tree)[7] = (char *)malloc(70);
    say("tree", (*tree)[7]);
    (*table)[8] = (char *)malloc(80);
    say("table", (*table)[8]);
    object = new app::Widget;
    say("object", object);
    second = new app::Both;
    say("both", dynamic_cast<void *>(second));
    shared = std::make_shared<app::Widget>();
    say("shared", shared.get());
    cache[5] = (char *)malloc(1 << 20);
    say("mapped", cache[5]);
    cache[6] = (char *)aligned_alloc(4096, 1 << 21);
    say("aligned", cache[6]);
}

static void freed() {
    void *large[20], *small[20];
    for (int i = 0; i < 20; i++) {
        large[i] = malloc(3000 + 16 * i);
        // Neighbours that stay keep these apart.
        say("between", malloc(200));
    }
    for (void *&block : small)
        block = malloc(90);
    for (void *block : large) {
        say("freed_large", block);
        free(block);
    }
    // To the bins of their sizes.
    free(malloc(100000));
    // Seven go to the thread's cache, the others to a fast bin.
    for (void *block : small) {
        say("freed_small", block);
        free(block);
    }
}

int main() {
    pthread_t thread;
    pthread_barrier_init(&begun, nullptr, 3);
    blocks();
    fflush(stdout);
    pthread_create(&thread, nullptr, worker, nullptr);
    pthread_create(&thread, nullptr, spinner, nullptr);
    pthread_barrier_wait(&begun);
    pthread_create(&thread, nullptr, leaver, nullptr);
    pthread_join(thread, nullptr);
    // Last: whatever is allocated later may be where these were.
    freed();
    puts("ready");
    fflush(stdout);
    // Until the test has gone.
    char byte;
    return read(0, &byte, 1) < 0;
}
