// An event bus to which every request subscribes.
// The fault: nobody unsubscribes.
//
// listeners leak|ok SEED
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

static std::mt19937 engine;

static int uniform(int from, int to)
{
    return std::uniform_int_distribution<int>(from, to)(engine);
}

class Bus {
    std::vector<std::function<size_t()>> listeners;

public:
    void subscribe(std::function<size_t()> listener)
    {
        listeners.push_back(std::move(listener)); // keeps
    }

    void unsubscribe() { listeners.pop_back(); }

    size_t publish() const { return listeners.back()(); }
};

static void handle(Bus &bus, bool leaks)
{
    std::string body(uniform(20000, 100000), 'b');
    std::string context = body.substr(0, uniform(200, 4000)); // allocates
    bus.subscribe([context = std::move(context)] { return context.size(); });
    size_t seen = bus.publish();
    body.resize(seen);
    if (!leaks) // the fault
        bus.unsubscribe();
}

int main(int argc, char **argv)
{
    bool leaks = argc > 2 && std::string(argv[1]) == "leak";
    engine.seed(argc > 2 ? std::stoi(argv[2]) : 1);
    Bus bus;
    for (int request = 0;; request++) {
        handle(bus, leaks);
        if (request == 200)
            std::puts("serving"), std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(uniform(12, 18)));
    }
}
