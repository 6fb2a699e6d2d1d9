// A program with one busy function, named when it is compiled: programs made of this have different functions at the
// same addresses.
#include "golden.h"

NOINLINE void BUSY(void) {
    SPIN(500 * MS);
}

int main(void) {
    BUSY();
    return 0;
}
