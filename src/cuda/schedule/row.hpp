// A schedule: one way to compute attention on a GPU. Plain C++: the support table is made of these
// rows, one on each GPU device that has the schedule.
#pragma once

#include <quatt/quatt.h>

#include <cstdint>

namespace quatt::schedule {

struct ScheduleRow {
    const char* name;
    const char* compute;  // compute capabilities, as in the table
    const char* recipes;  // names, as in the table; all as they are
    const char* dtypes;
    const char* head_dims;
    std::int32_t most_head_dim;
    std::int32_t rows_per_item;  // query rows of an item of the list of work
    std::int32_t accumulator;    // with it and a key tile of 64, `emulate` gives the same codes
    // Why other GPUs cannot emulate its instructions; null: they can, and emu has it.
    const char* not_on_emu = nullptr;
};

}  // namespace quatt::schedule
