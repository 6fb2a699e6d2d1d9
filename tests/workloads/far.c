// far: code in two places. Build with -Wl,--section-start=.far=0x10000000.
volatile int sink;
static const char table[70000] = {1};
static inline __attribute__((always_inline)) int mix(int x) { sink += x; sink ^= table[x & 0xffff]; return x * sink; }
__attribute__((noinline)) int near_work(int x) { return mix(x) + mix(x + 1); }
__attribute__((section(".far"), noinline)) int far_helper(int x) { return mix(x) - sink; }
__attribute__((section(".far"), noinline)) int far_work(int x) { return far_helper(x) + mix(x + 3) + near_work(x); }

int main(void) {
    for (int i = 0; i < 1000; i++)
        sink += far_work(i) + near_work(i);
    return 0;
}
