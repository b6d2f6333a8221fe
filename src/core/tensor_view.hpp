// A tensor of the caller's as everything here reads it: it may be absent, and an extent of 1 or
// less never uses its stride.
#pragma once
#include <quatt/quatt.h>

#include <cstdint>

namespace quatt::core {

class TensorView {
public:
    explicit TensorView(const quatt_tensor& t) : t_(&t) {}

    [[nodiscard]] bool present() const { return t_->dtype != QUATT_NONE; }

    // Null where the tensor is absent.
    template <class T>
    [[nodiscard]] T* data() const {
        return present() ? static_cast<T*>(t_->data) : nullptr;
    }

    // In elements; 0 also for an axis that the tensor does not have.
    [[nodiscard]] std::int64_t stride(int axis) const {
        return present() && axis >= 0 && axis < t_->rank && t_->extent[axis] > 1 ? t_->stride[axis]
                                                                                 : 0;
    }
    // Axis 0 is the last one, 1 the one before it.
    [[nodiscard]] std::int64_t stride_from_last(int axis) const {
        return stride(t_->rank - 1 - axis);
    }

    // Element i of a vector.
    template <class T>
    [[nodiscard]] T at(std::int64_t i) const {
        return data<const T>()[i * stride(0)];
    }

private:
    const quatt_tensor* t_;
};

[[nodiscard]] inline bool present(const quatt_tensor& t) {
    return TensorView(t).present();
}

// Of one segment's head; `batch` is 0 for packed tensors.
struct HeadStrides {
    std::int64_t batch = 0, token = 0, head = 0, channel = 0;
};

// q, k, v, out: [B,S,H,D] or [T,H,D].
[[nodiscard]] inline HeadStrides strides_of_heads(const quatt_tensor& t) {
    const TensorView v(t);
    return {.batch = v.stride_from_last(3),
            .token = v.stride_from_last(2),
            .head = v.stride_from_last(1),
            .channel = v.stride_from_last(0)};
}

// One value a row, lse and light_mass: [B,H,S] or [H,T].
[[nodiscard]] inline HeadStrides strides_of_rows(const quatt_tensor& t) {
    const TensorView v(t);
    return {.batch = v.stride_from_last(2),
            .token = v.stride_from_last(0),
            .head = v.stride_from_last(1)};
}

}  // namespace quatt::core
