// A message broker in C++, with the faults that such programs have.
//
// broker leak|ok SEED FAULT
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static bool leaks;
static std::mt19937 engine;

static int uniform(int from, int to)
{
    return std::uniform_int_distribution<int>(from, to)(engine);
}

static std::string text()
{
    return std::string(uniform(2000, 8000), 't'); // allocates: topics, futures, waiting, listeners
}

// Topics of clients that have gone stay in the table.
static std::unordered_map<std::string, std::vector<std::string>> topics;

static void add_topic(int count)
{
    std::string name = "topic number " + std::to_string(count);
    topics[name].push_back(text());
    if (!leaks)
        topics.erase(name);
}

// A connection and its handler own each other.
struct Connection;
struct Handler {
    std::shared_ptr<Connection> owner;
    std::weak_ptr<Connection> weak_owner;
};
struct Connection : std::enable_shared_from_this<Connection> { // allocates: cycles
    std::vector<char> received = std::vector<char>(6000, 'r'); // allocates: cycles
    std::shared_ptr<Handler> handler = std::make_shared<Handler>(); // allocates: cycles
};

static void accept_connection(int)
{
    auto connection = std::make_shared<Connection>(); // allocates: cycles
    if (leaks)
        connection->handler->owner = connection;
    else
        connection->handler->weak_owner = connection;
}

// A message is deleted by a pointer to its base, which has no virtual destructor.
struct Message {
    int number = 0;
};
struct Text : Message { // allocates: base
    std::vector<char> text = std::vector<char>(5000, 't'); // allocates: base
};

static void send_message(int)
{
    auto *message = new Text; // allocates: base
    if (leaks)
        delete static_cast<Message *>(message);
    else
        delete message;
}

// Each request adds a listener.
static std::vector<std::function<void()>> listeners;

static void add_listener(int)
{
    std::string page = text();
    listeners.emplace_back([page = std::move(page)] { std::puts(page.c_str()); });
    if (!leaks)
        listeners.pop_back();
}

// Results that no client fetches.
static std::list<std::future<std::string>> futures;

static void start_job(int)
{
    futures.push_back(std::async(std::launch::async, text));
    futures.back().wait();
    if (!leaks)
        futures.clear();
}

// Jobs for a consumer that is too slow.
static std::deque<std::string> waiting;
static std::mutex mutex;

static void consume()
{
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(leaks ? 100 : 5));
        std::lock_guard<std::mutex> lock(mutex);
        if (!waiting.empty())
            waiting.pop_front();
    }
}

static void enqueue(int count)
{
    if (count == 1)
        std::thread(consume).detach();
    std::lock_guard<std::mutex> lock(mutex);
    waiting.push_back(text());
}

// Every sample is kept for a percentile.
static std::vector<double> samples;

static void take_samples(int)
{
    for (int i = 0; i < 700; i++)
        samples.push_back(uniform(1, 1000)); // allocates: samples
    if (!leaks)
        samples.clear();
}

// Not leaks: a cache with a limit that fills up meanwhile.
static std::map<int, std::string> cache;

static void fill_cache(int count)
{
    cache[count % 700] = std::string(uniform(2000, 8000), 'c');
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    leaks = !std::strcmp(argv[1], "leak");
    engine.seed(std::stoi(argv[2]));
    const std::map<std::string, void (*)(int)> faults = {
        { "topics", add_topic }, { "cycles", accept_connection }, { "base", send_message }, { "listeners", add_listener },
        { "futures", start_job }, { "waiting", enqueue }, { "samples", take_samples }, { "cache", fill_cache },
    };
    auto handle = faults.at(argv[3]);
    int limit = argc > 4 ? std::stoi(argv[4]) : 1 << 30;
    for (int count = 1; count < limit; count++) {
        handle(count);
        std::vector<std::string> reply(uniform(5, 20), std::string(300, 'r'));
        if (count == 200)
            std::puts("serving"), std::fflush(stdout);
        if (argc == 4)
            std::this_thread::sleep_for(std::chrono::milliseconds(uniform(15, 25)));
    }
}
