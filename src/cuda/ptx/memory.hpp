// Views of global and shared memory, and the loads and stores through them. Nothing else in a
// kernel touches memory. Natively they are a pointer and a 32-bit address; in the executor they
// know their extent, and every access is checked.
#pragma once

#include "cuda/ptx/platform.hpp"

#if !defined(__CUDACC__)
#include <cstring>
#include <type_traits>
#endif

namespace quatt::ptx {
inline namespace QUATT_ABI {

namespace detail {
template <class T>
struct Mutable {
    using Type = T;
};
template <class T>
struct Mutable<const T> {
    using Type = T;
};
}  // namespace detail

// `count` elements from `p`. Made from a pointer on the host and narrowed in the kernel, to the
// head and then to the tile: a tight view finds more.
template <class T>
class Global {
public:
    Global() = default;
    QUATT_HD Global(T* p, i64 count);
    // A view of T is a view of const T.
    template <class Mutable>
    QUATT_HD Global(const Global<Mutable>& other) : Global(other.data(), other.count()) {}

    [[nodiscard]] QUATT_DEV Global sub(i64 first, i64 count, Site site = Site::current()) const;

    // U at element `i`: T itself, or a wider type of 2 to 16 bytes that is aligned there.
    // PTX ISA 9.7.9.8 (ld), 9.7.9.11 (st)
    template <class U = typename detail::Mutable<T>::Type>
    [[nodiscard]] QUATT_DEV U load(i64 i, Site site = Site::current()) const;
    template <class U>
    QUATT_DEV void store(i64 i, U value, Site site = Site::current()) const;

    [[nodiscard]] QUATT_HD T* data() const { return p_; }
#if defined(__CUDACC__)
    [[nodiscard]] QUATT_HD i64 count() const {
        return 0;
    }

private:
    T* p_;
#else
    [[nodiscard]] i64 count() const {
        return count_;
    }
    // Whether `bytes` at element `i` may be accessed as one; reports what is wrong.
    [[nodiscard]] bool check(i64 i, i64 bytes, i64 alignment, const char* what, Site site) const;

private:
    T* p_ = nullptr;
    i64 count_ = 0;
#endif
};

// Bytes of shared memory. Never a generic pointer.
class Shared {
public:
    [[nodiscard]] QUATT_DEV Shared sub(u32 first, u32 bytes, Site site = Site::current()) const;

    // U at byte `offset`, of 1, 2, 4, 8 or 16 bytes. PTX ISA 9.7.9.8 (ld), 9.7.9.11 (st)
    template <class U>
    [[nodiscard]] QUATT_DEV U load(u32 offset, Site site = Site::current()) const;
    template <class U>
    QUATT_DEV void store(u32 offset, U value, Site site = Site::current()) const;

    // In the shared window; swizzles are functions of it.
    [[nodiscard]] QUATT_DEV u32 address() const { return address_; }

#if defined(__CUDACC__)
    QUATT_DEV explicit Shared(u32 address, u32) : address_(address) {}

private:
    u32 address_;
#else
    Shared(u32 address, u32 bytes) : address_(address), bytes_(bytes) {}
    [[nodiscard]] u32 bytes() const {
        return bytes_;
    }
    [[nodiscard]] bool check(u32 offset, u32 bytes, u32 alignment, const char* what,
                             Site site) const;

private:
    u32 address_, bytes_;
#endif
};

#if defined(__CUDACC__)

template <class T>
QUATT_HD Global<T>::Global(T* p, i64) : p_(p) {}

template <class T>
QUATT_DEV Global<T> Global<T>::sub(i64 first, i64 count, Site) const {
    return {p_ + first, count};
}

template <class T>
template <class U>
QUATT_DEV U Global<T>::load(i64 i, Site) const {
    return *reinterpret_cast<const U*>(p_ + i);
}

template <class T>
template <class U>
QUATT_DEV void Global<T>::store(i64 i, U value, Site) const {
    *reinterpret_cast<U*>(p_ + i) = value;
}

QUATT_DEV Shared Shared::sub(u32 first, u32 bytes, Site) const {
    return Shared(address_ + first, bytes);
}

template <class U>
QUATT_DEV U Shared::load(u32 offset, Site) const {
    const u32 at = address_ + offset;
    if constexpr (sizeof(U) == 1) {
        u16 v;
        asm volatile("ld.shared.u8 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
        return formats::bit_cast<U>(static_cast<u8>(v));
    } else if constexpr (sizeof(U) == 2) {
        u16 v;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
        return formats::bit_cast<U>(v);
    } else if constexpr (sizeof(U) == 4) {
        u32 v;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
        return formats::bit_cast<U>(v);
    } else if constexpr (sizeof(U) == 8) {
        U32x2 v;
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(v.x), "=r"(v.y)
                     : "r"(at)
                     : "memory");
        return formats::bit_cast<U>(v);
    } else {
        U32x4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(at)
                     : "memory");
        return formats::bit_cast<U>(v);
    }
}

template <class U>
QUATT_DEV void Shared::store(u32 offset, U value, Site) const {
    const u32 at = address_ + offset;
    if constexpr (sizeof(U) == 1) {
        const u16 v = formats::bit_cast<u8>(value);
        asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "h"(v) : "memory");
    } else if constexpr (sizeof(U) == 2) {
        const u16 v = formats::bit_cast<u16>(value);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(v) : "memory");
    } else if constexpr (sizeof(U) == 4) {
        const u32 v = formats::bit_cast<u32>(value);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
    } else if constexpr (sizeof(U) == 8) {
        const U32x2 v = formats::bit_cast<U32x2>(value);
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
    } else {
        const U32x4 v = formats::bit_cast<U32x4>(value);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y),
                     "r"(v.z), "r"(v.w)
                     : "memory");
    }
}

#else

template <class T>
Global<T>::Global(T* p, i64 count) : p_(p), count_(count) {}

template <class T>
bool Global<T>::check(i64 i, i64 bytes, i64 alignment, const char* what, Site site) const {
    simt::block().check_grid_wait(what, site);
    if (i < 0 || i > count_ || bytes > (count_ - i) * static_cast<i64>(sizeof(T))) {
        simt::block().report(simt::Fault::kGlobalBounds, site,
                             std::string(what) + " of " + std::to_string(bytes) +
                                 " bytes at element " + std::to_string(i) + " of " +
                                 std::to_string(count_));
        return false;
    }
    if (reinterpret_cast<std::uintptr_t>(p_ + i) % static_cast<std::uintptr_t>(alignment) != 0) {
        simt::block().report(simt::Fault::kMisaligned, site,
                             std::string(what) + " of " + std::to_string(bytes) +
                                 " bytes at element " + std::to_string(i));
        return false;
    }
    return true;
}

template <class T>
Global<T> Global<T>::sub(i64 first, i64 count, Site site) const {
    if (first < 0 || count < 0 || first > count_ || count > count_ - first) {
        simt::block().report(simt::Fault::kGlobalBounds, site,
                             "view of " + std::to_string(count) + " elements at " +
                                 std::to_string(first) + " of " + std::to_string(count_));
        return {p_, 0};
    }
    return {p_ + first, count};
}

template <class T>
template <class U>
U Global<T>::load(i64 i, Site site) const {
    static_assert(std::is_trivially_copyable_v<U> && sizeof(U) <= 16);
    simt::block().step(site);
    U value;
    std::memset(static_cast<void*>(&value), 0xFF, sizeof value);
    if (check(i, sizeof(U), sizeof(U), "load", site))
        std::memcpy(static_cast<void*>(&value), p_ + i, sizeof value);
    return value;
}

template <class T>
template <class U>
void Global<T>::store(i64 i, U value, Site site) const {
    static_assert(std::is_trivially_copyable_v<U> && sizeof(U) <= 16 && !std::is_const_v<T>);
    simt::block().step(site);
    if (check(i, sizeof(U), sizeof(U), "store", site))
        std::memcpy(static_cast<void*>(p_ + i), &value, sizeof value);
}

inline bool Shared::check(u32 offset, u32 bytes, u32 alignment, const char* what, Site site) const {
    if (offset > bytes_ || bytes > bytes_ - offset) {
        simt::block().report(simt::Fault::kSharedBounds, site,
                             std::string(what) + " of " + std::to_string(bytes) +
                                 " bytes at offset " + std::to_string(offset) + " of " +
                                 std::to_string(bytes_));
        return false;
    }
    if ((address_ + offset) % alignment != 0) {
        simt::block().report(simt::Fault::kMisaligned, site,
                             std::string(what) + " at shared address " +
                                 std::to_string(address_ + offset) + ", not a multiple of " +
                                 std::to_string(alignment));
        return false;
    }
    return true;
}

inline Shared Shared::sub(u32 first, u32 bytes, Site site) const {
    if (!check(first, bytes, 1, "view", site)) return {address_, 0};
    return {address_ + first, bytes};
}

template <class U>
U Shared::load(u32 offset, Site site) const {
    static_assert(std::is_trivially_copyable_v<U> && sizeof(U) <= 16);
    simt::Block& block = simt::block();
    block.step(site);
    U value;
    std::memset(static_cast<void*>(&value), 0xFF, sizeof value);
    if (!check(offset, sizeof(U), sizeof(U), "load", site)) return value;
    block.shadow().read(simt::self().actor, address_ + offset, sizeof(U), site);
    std::memcpy(static_cast<void*>(&value), block.shared(address_ + offset), sizeof value);
    return value;
}

template <class U>
void Shared::store(u32 offset, U value, Site site) const {
    static_assert(std::is_trivially_copyable_v<U> && sizeof(U) <= 16);
    simt::Block& block = simt::block();
    block.step(site);
    if (!check(offset, sizeof(U), sizeof(U), "store", site)) return;
    block.shadow().write(simt::self().actor, address_ + offset, sizeof(U), site);
    std::memcpy(block.shared(address_ + offset), &value, sizeof value);
}

#endif

// The block's dynamic shared memory, of which the kernel's plan takes `bytes`. Aligned to 1024
// bytes, which the 128-byte swizzle needs.
QUATT_DEV Shared dynamic_shared(u32 bytes, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    extern __shared__ __align__(1024) u8 quatt_dynamic_shared[];
    return Shared(static_cast<u32>(__cvta_generic_to_shared(quatt_dynamic_shared)), bytes);
#else
    const u32 have = simt::block().shared_bytes();
    if (bytes > have)
        simt::block().report(
            simt::Fault::kSharedBounds, site,
            "a plan of " + std::to_string(bytes) + " bytes, launched with " + std::to_string(have));
    return {0, bytes < have ? bytes : have};
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
