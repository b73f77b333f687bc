// Sessions and their connections, which know each other.
// The fault: the connection owns its session too.
//
// cycle leak|ok SEED
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

struct Session;

struct Connection {
    std::vector<char> buffer;
    std::weak_ptr<Session> session;
    std::shared_ptr<Session> owner;
};

struct Session {
    std::string name;
    std::shared_ptr<Connection> connection;
};

static std::shared_ptr<Session> open_session(int number, bool leaks)
{
    auto session = std::make_shared<Session>(); // allocates
    auto connection = std::make_shared<Connection>(); // allocates
    connection->buffer.resize(uniform(1000, 9000)); // allocates
    session->name = std::to_string(number);
    session->connection = connection;
    connection->session = session;
    if (leaks) // the fault
        connection->owner = session;
    return session;
}

static size_t serve(const Session &session)
{
    std::vector<char> page(uniform(30000, 120000), 'p');
    page.insert(page.end(), session.connection->buffer.begin(), session.connection->buffer.end());
    return page.size();
}

int main(int argc, char **argv)
{
    bool leaks = argc > 2 && std::string(argv[1]) == "leak";
    engine.seed(argc > 2 ? std::stoi(argv[2]) : 1);
    size_t sent = 0;
    for (int number = 0;; number++) {
        auto session = open_session(number, leaks);
        sent += serve(*session);
        if (number == 100)
            std::printf("serving, %zu sent\n", sent), std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(uniform(35, 55)));
    }
}
