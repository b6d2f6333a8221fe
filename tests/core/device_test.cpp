#include "core/device.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace quatt::core {
namespace {

RC_GTEST_PROP(DeviceName, ReadsBackAsTheSameDevice, ()) {
    quatt_device d{};
    d.struct_size = sizeof d;
    d.backend = *rc::gen::inRange<int>(0, 6);
    if (d.backend == QUATT_BACKEND_CUDA || d.backend == QUATT_BACKEND_EMU) {
        d.ordinal = *rc::gen::inRange(0, 1 << 20);
    }
    if (d.backend == QUATT_BACKEND_SIMT || d.backend == QUATT_BACKEND_EMU) {
        d.compute_major = *rc::gen::inRange(1, 1000);
        d.compute_minor = *rc::gen::inRange(0, 10);
    }
    const std::string name = device_name(d);
    const Result<quatt_device> parsed = parse_device(name);
    RC_ASSERT(parsed.ok());
    RC_ASSERT(parsed->backend == d.backend);
    RC_ASSERT(parsed->ordinal == d.ordinal);
    RC_ASSERT(parsed->compute_major == d.compute_major);
    RC_ASSERT(parsed->compute_minor == d.compute_minor);
    RC_ASSERT(check_device(*parsed).empty());
    RC_ASSERT(name.size() < sizeof(quatt_plan_info::device));
}

// Any bytes: an answer, and never a crash.
RC_GTEST_PROP(DeviceName, MayBeAnything, (const std::string& name)) {
    const Result<quatt_device> parsed = parse_device(name);
    if (parsed.ok()) {
        RC_ASSERT(check_device(*parsed).empty());
    } else {
        RC_ASSERT(parsed.status().code() == QUATT_INVALID_ARGUMENT);
        RC_ASSERT(parsed.status().message().find("device is \"") == 0u);
    }
}

// Words that a device name is made of, in any order.
RC_GTEST_PROP(DeviceName, MayBeAnyMixOfItsParts, ()) {
    const auto parts = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("cpu", "cuda", "simt", "emu", "emulate", "reference", ":",
                                      ":", "sm_", "90", "a", "0", "-", " "));
    std::string name;
    for (const std::string& part : parts) {
        name += part;
    }
    const Result<quatt_device> parsed = parse_device(name);
    if (parsed.ok()) {
        RC_ASSERT(check_device(*parsed).empty());
        RC_ASSERT(parse_device(device_name(*parsed)).ok());
    }
}

TEST(DeviceName, FitsThePlanForAnyDescriptor) {
    quatt_device d{};
    d.struct_size = sizeof d;
    d.backend = QUATT_BACKEND_EMU;
    d.ordinal = 2147483647;
    d.compute_major = 999;
    d.compute_minor = 9;
    EXPECT_TRUE(check_device(d).empty());
    EXPECT_LT(device_name(d).size(), sizeof(quatt_plan_info::device));
    EXPECT_STREQ(backend_name(99), "unknown");
    EXPECT_STREQ(backend_name(-1), "unknown");
}

}  // namespace
}  // namespace quatt::core
