// Sessions of users, by number.
// The fault: logging out does not erase the session.
//
// sessions leak|ok SEED
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

static std::mt19937 engine;

static int uniform(int from, int to)
{
    return std::uniform_int_distribution<int>(from, to)(engine);
}

struct Session {
    std::string user;
    std::string profile;
};

static std::string load_profile()
{
    std::string json(uniform(10000, 90000), ' ');
    std::string profile(uniform(300, 6000), 'p'); // allocates
    profile[0] = json[0];
    return profile;
}

class Sessions {
    std::map<unsigned, Session> sessions;
    bool leaks;

public:
    explicit Sessions(bool leaks) : leaks(leaks) {}

    void log_in(unsigned number)
    {
        auto profile = load_profile();
        Session &session = sessions[number]; // keeps
        session.user = "user";
        session.profile = std::move(profile);
    }

    void log_out(unsigned number)
    {
        if (!leaks) // the fault
            sessions.erase(number);
    }
};

int main(int argc, char **argv)
{
    Sessions sessions(argc > 2 && std::string(argv[1]) == "leak");
    engine.seed(argc > 2 ? std::stoi(argv[2]) : 1);
    for (unsigned number = 0;; number++) {
        sessions.log_in(number);
        if (number >= 200)
            sessions.log_out(number - 200);
        if (number == 300)
            std::puts("serving"), std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(uniform(25, 35)));
    }
}
