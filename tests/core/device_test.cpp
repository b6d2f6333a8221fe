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
        const int arch = *rc::gen::element(75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121);
        d.compute_major = arch / 10;
        d.compute_minor = arch % 10;
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

TEST(DeviceName, ArchitecturesAreThoseThatGpusHave) {
    for (const char* name : {"simt:sm_80", "simt:sm_90", "simt:sm_90a", "simt:sm_100f",
                             "simt:sm_120", "simt:sm_120a", "emu:sm_121f", "emu:sm_75:1"}) {
        EXPECT_TRUE(parse_device(name).ok()) << name;
    }
    // sm_90a has wgmma, and so has every GPU that is sm_90.
    EXPECT_EQ(device_name(*parse_device("simt:sm_90a")), "simt:sm_90");
    for (const char* name :
         {"simt:sm_81", "simt:sm_91", "simt:sm_91a", "simt:sm_10", "simt:sm_090", "simt:sm_900",
          "simt:sm_80a", "simt:sm_90f", "simt:sm_a", "emu:sm_122", "simt:sm_9999"}) {
        const Result<quatt_device> parsed = parse_device(name);
        ASSERT_FALSE(parsed.ok()) << name;
        const std::string message = parsed.status().message();
        EXPECT_NE(message.find(std::string("device is \"") + name + "\""), std::string::npos);
        EXPECT_NE(message.find("sm_75, sm_80, "), std::string::npos) << message;
        EXPECT_NE(message.find("sm_90[a], sm_100[a|f]"), std::string::npos) << message;
        EXPECT_NE(message.find("sm_121[a|f]"), std::string::npos) << message;
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
