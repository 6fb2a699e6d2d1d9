// burn_cpp THREADS SECONDS: as burn.c, through a virtual method, a template and a file-local function.
#include "truth.h"
#include <memory>
#include <thread>
#include <vector>

namespace field {

static truth alpha{"hot_alpha", 0}, beta{"hot_beta", 0}, gamma{"hot_gamma", 0};

struct Engine {
    virtual ~Engine() = default;
    virtual void hot_alpha(uint64_t rounds) = 0;
};

struct Piston final : Engine {
    NOINLINE void hot_alpha(uint64_t rounds) override {
        OWN_FRAME();
        uint64_t start = thread_cpu_ns();
        work(rounds);
        truth_add(&alpha, thread_cpu_ns() - start);
    }
};

template <typename T> NOINLINE void hot_beta(T rounds) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    work(rounds);
    truth_add(&beta, thread_cpu_ns() - start);
}

namespace {
NOINLINE void hot_gamma(std::vector<uint64_t> const &rounds) {
    OWN_FRAME();
    uint64_t start = thread_cpu_ns();
    for (uint64_t r : rounds)
        work(r);
    truth_add(&gamma, thread_cpu_ns() - start);
}
} // namespace

NOINLINE void drive(uint64_t seed, uint64_t budget) {
    OWN_FRAME();
    std::unique_ptr<Engine> engine = std::make_unique<Piston>();
    Engine *volatile opaque = engine.get(); // keeps the call virtual
    std::vector<uint64_t> const rounds{BLOCK / 2, BLOCK / 2};
    uint64_t random = seed * 2654435761u + 88172645463325252u;
    while (thread_cpu_ns() < budget) {
        uint64_t turn = next_random(&random) % 10;
        if (turn < 5)
            opaque->hot_alpha(BLOCK);
        else if (turn < 8)
            hot_beta<unsigned long>(BLOCK);
        else
            hot_gamma(rounds);
    }
}

} // namespace field

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: burn_cpp THREADS SECONDS\n"), 2;
    long threads = atol(argv[1]);
    uint64_t budget = seconds_arg(argv[2]);
    wait_for_go();

    std::vector<std::thread> others;
    for (long i = 1; i < threads; i++)
        others.emplace_back([i, budget] { field::drive(static_cast<uint64_t>(i), budget); });
    field::drive(0, budget);
    for (auto &t : others)
        t.join();

    truth_print(&field::alpha);
    truth_print(&field::beta);
    truth_print(&field::gamma);
    cpu_print();
    return 0;
}
