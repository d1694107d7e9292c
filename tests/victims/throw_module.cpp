// A module that throws and catches by itself.
#include <stdexcept>

extern "C" int throw_and_catch(int times) {
    int caught = 0;
    for (int i = 0; i < times; i++) {
        try {
            throw std::out_of_range("out of the module's range");
        } catch (const std::logic_error &) {
            caught++;
        }
    }
    return caught;
}
