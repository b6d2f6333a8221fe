#include <gtest/gtest.h>
#include <quatt/quatt.h>

extern "C" int quatt_test_c_api(void);

namespace {

TEST(CApi, WorksFromC99) {
    EXPECT_EQ(quatt_test_c_api(), 0)
        << "line of c_api.c that failed; last error: " << quatt_last_error();
}

}  // namespace
