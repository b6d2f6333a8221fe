// Status and Result: how the C++ layer (and the library inside) reports errors without exceptions.
#pragma once
#include <quatt/quatt.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace quatt {

// A copy of the message of this thread's last failed call, which no later call changes.
[[nodiscard]] inline std::string last_error() {
    std::string message(quatt_copy_last_error(nullptr, 0), '\0');
    quatt_copy_last_error(message.data(), message.size());
    message.pop_back();
    return message;
}

class [[nodiscard]] Status {
public:
    Status() = default;
    Status(quatt_status code, std::string message) : code_(code), message_(std::move(message)) {}

    // The status of the C call that just returned in this thread.
    static Status from_c(quatt_status code) {
        return code == QUATT_OK ? Status() : Status(code, last_error());
    }

    [[nodiscard]] bool ok() const { return code_ == QUATT_OK; }
    [[nodiscard]] quatt_status code() const { return code_; }
    [[nodiscard]] const std::string& message() const { return message_; }

private:
    quatt_status code_ = QUATT_OK;
    std::string message_;
};

// What the convenience layer throws.
class Error : public std::runtime_error {
public:
    explicit Error(const Status& status)
        : std::runtime_error(status.message()), code_(status.code()) {}
    [[nodiscard]] quatt_status code() const { return code_; }

private:
    quatt_status code_;
};

// A value, or the status that says why there is none.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }
    [[nodiscard]] Status status() const { return ok() ? Status() : std::get<1>(state_); }

    // The value; throws quatt::Error where there is none.
    T& value() & { return check(), std::get<0>(state_); }
    const T& value() const& { return check(), std::get<0>(state_); }
    T&& value() && { return check(), std::get<0>(std::move(state_)); }

    T& operator*() { return std::get<0>(state_); }
    const T& operator*() const { return std::get<0>(state_); }
    T* operator->() { return &std::get<0>(state_); }
    const T* operator->() const { return &std::get<0>(state_); }

private:
    void check() const {
        if (!ok()) {
            throw Error(std::get<1>(state_));
        }
    }
    std::variant<T, Status> state_;
};

}  // namespace quatt
