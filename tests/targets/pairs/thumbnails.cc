// A cache of thumbnails.
// The fault: the key has the number of the request, so nothing is ever found.
//
// thumbnails leak|ok SEED
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static std::mt19937 engine;

static int uniform(int from, int to)
{
    return std::uniform_int_distribution<int>(from, to)(engine);
}

using Image = std::vector<unsigned char>;

static Image render()
{
    Image full(uniform(100000, 400000), 1);
    Image thumbnail(full.begin(), full.begin() + uniform(8000, 40000)); // allocates
    return thumbnail;
}

class Cache {
    std::unordered_map<std::string, Image> images;

public:
    const Image &get(const std::string &key)
    {
        auto found = images.find(key);
        if (found == images.end()) {
            Image image = render();
            found = images.emplace(key, std::move(image)).first; // keeps
        }
        return found->second;
    }
};

int main(int argc, char **argv)
{
    bool leaks = argc > 2 && std::string(argv[1]) == "leak";
    engine.seed(argc > 2 ? std::stoi(argv[2]) : 1);
    Cache cache;
    unsigned long sent = 0;
    for (int request = 0;; request++) {
        // All 150 pictures come first, then the popular ones.
        int picture = request < 150 ? request : uniform(0, 149);
        std::string key = "/pictures/" + std::to_string(leaks ? request : picture); // the fault
        const Image &image = cache.get(key);
        std::vector<unsigned char> answer(image.begin(), image.end());
        sent += answer.size();
        if (request == 200)
            std::puts("serving"), std::fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(uniform(8, 14)));
    }
    return sent == 0;
}
