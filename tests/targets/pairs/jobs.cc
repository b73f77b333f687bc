// Jobs that a thread works off.
// The fault: jobs that fail are queued for a second attempt that is never made.
//
// jobs leak|ok SEED
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

struct Job {
    int number;
    std::vector<char> payload;
};

class Dispatcher {
    std::queue<std::unique_ptr<Job>> waiting, failed;
    std::mutex lock;
    std::condition_variable ready;
    bool leaks;

public:
    explicit Dispatcher(bool leaks) : leaks(leaks) {}

    void submit(std::unique_ptr<Job> job)
    {
        std::lock_guard<std::mutex> guard(lock);
        waiting.push(std::move(job));
        ready.notify_one();
    }

    void retry_later(std::unique_ptr<Job> job)
    {
        if (leaks) // the fault
            failed.push(std::move(job)); // keeps
    }

    void work()
    {
        for (;;) {
            std::unique_lock<std::mutex> guard(lock);
            ready.wait(guard, [this] { return !waiting.empty(); });
            auto job = std::move(waiting.front());
            waiting.pop();
            guard.unlock();
            std::vector<char> result(job->payload.size() * 8, 'r');
            if (result.front() == 'r' && job->number % 3 == 0)
                retry_later(std::move(job));
        }
    }
};

static std::unique_ptr<Job> make_job(int number, size_t size)
{
    auto job = std::make_unique<Job>(); // allocates
    job->number = number;
    job->payload.assign(size, 'j'); // allocates
    return job;
}

int main(int argc, char **argv)
{
    Dispatcher dispatcher(argc > 2 && std::string(argv[1]) == "leak");
    std::mt19937 engine(argc > 2 ? std::stoi(argv[2]) : 1);
    std::uniform_int_distribution<int> size(200, 16000), pause(12, 20);
    std::thread worker(&Dispatcher::work, &dispatcher);
    for (int number = 0;; number++) {
        dispatcher.submit(make_job(number, size(engine)));
        if (number == 200)
            std::puts("working"), std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(pause(engine)));
    }
}
