// A service that renders replies.
// The fault: each reply is put into a history that nothing empties.
//
// history leak|ok SEED
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

static std::mt19937 engine;

static int uniform(int from, int to)
{
    return std::uniform_int_distribution<int>(from, to)(engine);
}

struct Reply {
    int status;
    std::string body;
};

class History {
    std::vector<std::shared_ptr<Reply>> replies;

public:
    void record(std::shared_ptr<Reply> reply)
    {
        replies.push_back(std::move(reply)); // keeps
    }
};

static std::shared_ptr<Reply> make_reply(const std::vector<int> &rows)
{
    auto reply = std::make_shared<Reply>(); // allocates
    reply->status = 200 + rows.front() % 2;
    reply->body.assign(uniform(500, 8000), 'r'); // allocates
    return reply;
}

static std::vector<int> query()
{
    std::vector<int> rows;
    for (int row = uniform(2000, 20000); row > 0; row--)
        rows.push_back(row);
    return rows;
}

int main(int argc, char **argv)
{
    bool leaks = argc > 2 && std::string(argv[1]) == "leak";
    engine.seed(argc > 2 ? std::stoi(argv[2]) : 1);
    History history;
    for (int request = 0;; request++) {
        auto reply = make_reply(query());
        if (leaks) // the fault
            history.record(reply);
        if (request == 100)
            std::puts("serving"), std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(uniform(20, 30)));
    }
}
