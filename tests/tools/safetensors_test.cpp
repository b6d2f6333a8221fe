#include "safetensors.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "temporary_directory.hpp"

namespace quatt::tools {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

Bytes to_bytes(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

// A file with this header text, as it is, and this many bytes of data.
std::string raw_file(const std::string& header, std::size_t data_bytes) {
    std::string out(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(out.data(), &length, 8);
    return out + header + std::string(data_bytes, '\x5A');
}

std::string read_text(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

// The message of the Error that `action` throws, "" without one.
template <class Action>
std::string error_of(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

std::string parse_error(const std::string& file) {
    const Bytes bytes = to_bytes(file);
    return error_of([&] { (void)TensorSet::parse(bytes, "F"); });
}

TensorView view(std::string name, Dtype dtype, std::vector<std::int64_t> shape,
                std::span<const std::byte> bytes) {
    return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape), .bytes = bytes};
}

std::size_t entries_in(const fs::path& directory) {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(SafetensorsWriter, IsByteExact) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("golden.safetensors");
    const Bytes small = to_bytes("abc");
    const Bytes wide = to_bytes("01234567");
    const Bytes half = to_bytes("xy");
    const std::vector<TensorView> tensors = {
        view("mask", Dtype::kBool, {3}, small),
        view("scalar", Dtype::kBf16, {}, half),
        view("out \"\xC3\xA9\"", Dtype::kF32, {2, 1}, wide),
        view("none", Dtype::kF32, {0, 4}, {}),
    };
    write_safetensors(path, tensors, {{"kind", "golden"}, {"a", "1\n"}});

    std::string header = R"({"__metadata__":{"a":"1\n","kind":"golden"},)"
                         "\"out \\\"\xC3\xA9\\\"\":"
                         R"({"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                         R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]},)"
                         R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
                         R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[10,13]}})";
    ASSERT_EQ(header.size(), 284u);
    header.append(28, ' ');  // 8 + 312 = 5 * 64
    std::string golden("\x38\x01\0\0\0\0\0\0", 8);
    golden += header + "01234567" + "xy" + "abc";
    EXPECT_EQ(read_text(path), golden);
    EXPECT_EQ(entries_in(directory.path()), 1u);
}

TEST(SafetensorsFile, ReadsWhatWasWritten) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("a.safetensors");
    const Bytes wide = to_bytes("01234567");
    const Bytes small = to_bytes("abc");
    const std::vector<TensorView> tensors = {view("small", Dtype::kF8E4M3, {1, 3}, small),
                                             view("wide", Dtype::kF64, {1}, wide)};
    write_safetensors(path, tensors, {{"softmax_scale", "0.125"}});

    SafetensorsFile file(path);
    SafetensorsFile moved = std::move(file);
    ASSERT_EQ(moved.tensors().size(), 2u);
    EXPECT_EQ(moved.tensors()[0].name, "wide");
    EXPECT_TRUE(moved.tensors()[0].element_aligned());
    EXPECT_EQ(moved.at("small").dtype, Dtype::kF8E4M3);
    EXPECT_EQ(moved.at("small").shape, (std::vector<std::int64_t>{1, 3}));
    EXPECT_EQ(moved.at("small").elements(), 3);
    EXPECT_EQ(moved.at("small").describe(), "F8_E4M3 [1, 3]");
    EXPECT_TRUE(std::ranges::equal(moved.at("small").bytes, small));
    EXPECT_EQ(moved.metadata(), (Metadata{{"softmax_scale", "0.125"}}));
    EXPECT_EQ(moved.find("absent"), nullptr);
    EXPECT_EQ(error_of([&] { (void)moved.at("absent"); }),
              path + ": has no tensor 'absent'; it has wide, small");

    // A file may be replaced by one that is made of it.
    write_safetensors(path, moved.tensors(), moved.metadata());
    const SafetensorsFile again(path);
    moved = SafetensorsFile(path);
    EXPECT_TRUE(std::ranges::equal(again.at("wide").bytes, wide));
    EXPECT_TRUE(std::ranges::equal(moved.at("wide").bytes, wide));
}

TEST(SafetensorsFile, ReadsTheAntibodyCapture) {
    const SafetensorsFile file(QUATT_TEST_DATA_DIR "/antibody_bert_packed.safetensors");
    ASSERT_EQ(file.tensors().size(), 10u);
    for (const char* layer : {"0", "3", "7"}) {
        for (const char* part : {".q", ".k", ".v"}) {
            const TensorView& tensor = file.at(std::string("layers.") + layer + part);
            EXPECT_EQ(tensor.describe(), "BF16 [918, 8, 64]");
            EXPECT_EQ(tensor.bytes.size(), 918u * 8 * 64 * 2);
            EXPECT_TRUE(tensor.element_aligned());
        }
    }
    const TensorView& offsets = file.at("cu_seqlens");
    ASSERT_EQ(offsets.describe(), "I32 [5]");
    std::vector<std::int32_t> values(5);
    std::memcpy(values.data(), offsets.bytes.data(), offsets.bytes.size());
    EXPECT_EQ(values, (std::vector<std::int32_t>{0, 122, 231, 461, 918}));
    EXPECT_EQ(file.metadata().at("softmax_scale"), "0.125");
    EXPECT_EQ(file.metadata().at("causal"), "false");
    EXPECT_EQ(file.metadata().at("model"), "AntiBERTy 0.1.3 (PyPI, MIT): 8 layers, 8 heads of 64");
}

TEST(SafetensorsParse, AcceptsEveryDtypeByName) {
    int count = 0;
    for (const char* name :
         {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
          "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
          "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
        const std::optional<Dtype> dtype = dtype_from_name(name);
        ASSERT_TRUE(dtype) << name;
        EXPECT_EQ(static_cast<int>(*dtype), count++);
        EXPECT_EQ(dtype_name(*dtype), name);
        const int bytes = dtype_bits(*dtype) * 3;  // 24 elements
        const Bytes file = to_bytes(raw_file(std::string(R"({"x":{"dtype":")") + name +
                                                 R"(","shape":[2,3,4],"data_offsets":[0,)" +
                                                 std::to_string(bytes) + "]}}",
                                             static_cast<std::size_t>(bytes)));
        EXPECT_EQ(TensorSet::parse(file, "F").tensors().front().dtype, *dtype);
    }
}

TEST(SafetensorsParse, AcceptsWhatTheFormatAllows) {
    for (const auto& [header, data_bytes] : std::vector<std::pair<std::string, std::size_t>>{
             {"{}", 0},
             {"{}      ", 0},
             {R"({"__metadata__":{}})", 0},
             // Any order of keys and entries, whitespace, escapes in names.
             {R"({ "b":{"data_offsets":[2,4],"shape":[1],"dtype":"F16"},
                   "\u0061":{"shape":[2],"dtype":"U8","data_offsets":[0,2]} })",
              4},
             // Empty tensors, in front of, between and behind others.
             {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
              R"("c":{"dtype":"F32","shape":[3,0],"data_offsets":[2,2]},)"
              R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
              2},
             {R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3},
             // A tensor that is not aligned to its element.
             {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
              R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
              5},
         }) {
        EXPECT_EQ(parse_error(raw_file(header, data_bytes)), "") << header;
    }
}

struct Hostile {
    const char* what;
    std::string file;
    std::string message;  // a part of it
};

// One entry "q", and `data_bytes` of data.
std::string one_entry(const std::string& entry, std::size_t data_bytes) {
    return raw_file(R"({"q":)" + entry + "}", data_bytes);
}

std::string u8_shape(const std::string& shape) {
    return one_entry(R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,4]})", 4);
}

std::string u8_offsets(const std::string& offsets, std::size_t data_bytes = 4) {
    return one_entry(R"({"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}", data_bytes);
}

std::string two_entries(const std::string& offsets_a, const std::string& offsets_b,
                        std::size_t data_bytes) {
    return raw_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + offsets_a +
                        R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + offsets_b + "}}",
                    data_bytes);
}

std::string with_length(std::uint64_t length, const std::string& rest) {
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    return out + rest;
}

std::string repeat(const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i)
        out += text;
    return out;
}

std::vector<Hostile> hostile_files() {
    const std::string good = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
    return {
        {"empty file", "", "has 0 bytes"},
        {"shorter than the length", std::string(7, '\2'), "has 7 bytes"},
        {"no header", with_length(0, ""), "does not begin with '{'"},
        {"header longer than the file", with_length(5, "{}"),
         "header length is 5 bytes, but the file ends 2 bytes behind it"},
        {"header above 100 MB", with_length(100'000'001, "{}"), "allowed are at most 100000000"},
        {"header length 2^64 - 1", with_length(~std::uint64_t{0}, "{}"),
         "header length is 18446744073709551615 bytes; allowed"},
        {"header length 2^64 - 8", with_length(~std::uint64_t{7}, "{}"), "allowed are at most"},
        {"array as header", raw_file("[]", 0), "does not begin with '{'"},
        {"string as header", raw_file("\"a\"", 0), "does not begin with '{'"},
        {"space first", raw_file(" {}", 0), "does not begin with '{'"},
        {"byte order mark", raw_file("\xEF\xBB\xBF{}", 0), "does not begin with '{'"},
        {"header cut", raw_file(R"({"q":{"dtype":"U8")", 0), "is not valid JSON at byte"},
        {"text behind the header", raw_file("{} x", 0), "text behind its closing brace at byte 4"},
        {"two headers", raw_file("{}{}", 0), "text behind its closing brace"},
        {"NUL behind the header", raw_file(std::string("{}\0{}", 5), 0),
         "holds a NUL byte at byte 2"},
        {"NUL in a name", raw_file(std::string("{\"a\0\":1}", 8), 0), "NUL byte at byte 3"},
        {"escaped NUL in a name", raw_file(R"({"a\u0000b":{}})", 0),
         R"(the key 'a\x00b' holds a NUL)"},
        {"escaped NUL in metadata", raw_file(R"({"__metadata__":{"a":"\u0000"}})", 0),
         "NUL character"},
        {"comment", raw_file("{/**/}", 0), "is not valid JSON"},
        {"bad UTF-8 in a name", raw_file("{\"\xFF\":{}}", 0), "ill-formed UTF-8"},
        {"overlong UTF-8", raw_file("{\"\xC0\xAF\":{}}", 0), "ill-formed UTF-8"},
        {"UTF-8 surrogate", raw_file("{\"\xED\xA0\x80\":{}}", 0), "ill-formed UTF-8"},
        {"lone surrogate escape", raw_file(R"({"\ud800":{}})", 0), "is not valid JSON"},
        {"bad UTF-8 in metadata", raw_file("{\"__metadata__\":{\"a\":\"\x80\"}}", 0),
         "ill-formed UTF-8"},
        {"control character", raw_file("{\"a\x1B[31m\":{}}", 0), "is not valid JSON"},
        {"escape sequence in a name", raw_file(R"({"\u001b[31m":3})", 0),
         R"(tensor '\x1b[31m': is 3;)"},
        {"deep arrays", raw_file("{\"q\":" + repeat("[", 200'000) + repeat("]", 200'000) + "}", 0),
         "tensor 'q': is an array; allowed is an object"},
        {"deep objects", raw_file(repeat("{\"q\":", 200'000) + "1" + repeat("}", 200'000), 0),
         "unknown key 'q'"},
        {"deep metadata", raw_file(R"({"__metadata__":{"a":{"b":{}}}})", 0),
         "__metadata__: 'a' is an object; allowed is a string"},
        {"entry is a number", one_entry("1", 0), "tensor 'q': is 1; allowed is an object"},
        {"entry is null", one_entry("null", 0), "tensor 'q': is null; allowed is an object"},
        {"entry is empty", one_entry("{}", 0), "tensor 'q': has no dtype"},
        {"no shape", one_entry(R"({"dtype":"U8","data_offsets":[0,4]})", 4),
         "tensor 'q': has no shape"},
        {"no offsets", one_entry(R"({"dtype":"U8","shape":[4]})", 4),
         "tensor 'q': has no data_offsets"},
        {"unknown key",
         one_entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"strides":[1]})", 4),
         "tensor 'q': unknown key 'strides'; allowed are dtype, shape and data_offsets"},
        {"duplicate key in an entry",
         one_entry(R"({"dtype":"U8","shape":[4],"dtype":"I8","data_offsets":[0,4]})", 4),
         "tensor 'q': duplicate key 'dtype'"},
        {"duplicate shape",
         one_entry(R"({"dtype":"U8","shape":[],"shape":[4],"data_offsets":[0,4]})", 4),
         "tensor 'q': duplicate key 'shape'"},
        {"duplicate name", raw_file(R"({"q":)" + good + R"(,"q":)" + good + "}", 4),
         "duplicate tensor name 'q'"},
        {"duplicate name, escaped", raw_file(R"({"q":)" + good + R"(,"\u0071":)" + good + "}", 4),
         "duplicate tensor name 'q'"},
        {"duplicate metadata", raw_file(R"({"__metadata__":{},"__metadata__":{}})", 0),
         "duplicate key '__metadata__'"},
        {"duplicate key in metadata", raw_file(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
         "__metadata__: duplicate key 'a'"},
        {"metadata is an array", raw_file(R"({"__metadata__":[]})", 0),
         "__metadata__: is an array; allowed is an object of strings"},
        {"metadata is null", raw_file(R"({"__metadata__":null})", 0), "__metadata__: is null"},
        {"metadata holds a number", raw_file(R"({"__metadata__":{"a":1}})", 0),
         "__metadata__: 'a' is 1; allowed is a string"},
        {"unknown dtype", one_entry(R"({"dtype":"F128","shape":[4],"data_offsets":[0,4]})", 4),
         "tensor 'q': dtype is 'F128'; allowed are BOOL F4"},
        {"dtype in small letters",
         one_entry(R"({"dtype":"u8","shape":[],"data_offsets":[0,1]})", 1),
         "dtype is 'u8'; allowed are"},
        {"dtype is a number", one_entry(R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})", 4),
         "tensor 'q': dtype is 8; allowed are"},
        {"shape is a number", u8_shape("4"), "tensor 'q': shape is 4; allowed is an array"},
        {"shape is an object", u8_shape("{}"), "shape is an object; allowed is an array"},
        {"negative extent", u8_shape("[2,-2]"),
         "shape[1] is -2; allowed is an integer from 0 to 9223372036854775807"},
        {"negative zero", u8_shape("[-0]"), "shape[0] is"},
        {"fraction", u8_shape("[4.5]"), "shape[0] is 4.5; allowed is an integer"},
        {"whole fraction", u8_shape("[4.0]"), "shape[0] is 4.0; allowed is an integer"},
        {"exponent", u8_shape("[4e0]"), "shape[0] is 4e0; allowed is an integer"},
        {"extent is a string", u8_shape("[\"4\"]"), "shape[0] is the string '4'; allowed"},
        {"extent is true", u8_shape("[true]"), "shape[0] is true; allowed"},
        {"extent is an array", u8_shape("[[4]]"), "shape[0] is an array; allowed"},
        {"extent 2^63", u8_shape("[9223372036854775808]"), "shape[0] is 9223372036854775808"},
        {"extent above 2^64", u8_shape("[99999999999999999999999]"),
         "shape[0] is 99999999999999999999999; allowed"},
        {"extent above double", u8_shape("[1e999]"), "is not valid JSON"},
        {"extent NaN", u8_shape("[NaN]"), "is not valid JSON"},
        {"too many extents", u8_shape("[" + repeat("1,", 100'000) + "4]"),
         "tensor 'q': shape has more than 32 extents"},
        {"product overflows", u8_shape("[4294967296,4294967296]"),
         "shape [4294967296, 4294967296] of U8 overflows"},
        {"product overflows to 4", u8_shape("[4,4611686018427387905]"), "overflows"},
        {"product overflows beside a zero",
         one_entry(R"({"dtype":"U8","shape":[4294967296,0,4294967296],"data_offsets":[0,0]})", 0),
         "overflows"},
        {"bytes overflow",
         one_entry(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})", 0),
         "of F64 overflows"},
        {"no whole bytes", one_entry(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})", 2),
         "F4 is no whole number of bytes"},
        {"size too small", u8_shape("[3]"), "data_offsets [0, 4] are 4 bytes, but U8 [3] takes 3"},
        {"size too large", u8_shape("[5]"), "but U8 [5] takes 5"},
        {"offsets is a number", u8_offsets("4"), "data_offsets is 4; allowed is an array"},
        {"no offset", u8_offsets("[]"), "data_offsets has 0 numbers; allowed are 2"},
        {"one offset", u8_offsets("[0]"), "data_offsets has 1 numbers; allowed are 2"},
        {"three offsets", u8_offsets("[0,4,4]"), "data_offsets[2] is 4; allowed are 2 integers"},
        {"negative offset", u8_offsets("[-4,0]"), "data_offsets[0] is -4; allowed"},
        {"fractional offset", u8_offsets("[0,4.0]"), "data_offsets[1] is 4.0; allowed"},
        {"decreasing offsets", u8_offsets("[4,0]"), "tensor 'q': data_offsets [4, 0] decrease"},
        {"out of range", u8_offsets("[0,4]", 3),
         "data_offsets [0, 4] reach past the 3 bytes of data"},
        {"far out of range", u8_offsets("[18446744073709551611,18446744073709551615]"),
         "reach past the 4 bytes"},
        {"hole in front", u8_offsets("[1,5]", 5), "begin at 1, but the tensor before it ends at 0"},
        {"hole between", two_entries("[0,4]", "[5,9]", 9),
         "tensor 'b': data_offsets begin at 5, but the tensor before it ends at 4: the data has a"},
        {"overlap", two_entries("[0,4]", "[3,7]", 7),
         "tensor 'b': data_offsets begin at 3, but the tensor before it ends at 4: tensors "
         "overlap"},
        {"the same bytes twice", two_entries("[0,4]", "[0,4]", 4), "tensors overlap"},
        {"bytes behind the tensors", u8_offsets("[0,4]", 5),
         "the tensors end at byte 4 of the data, but the file holds 5"},
        {"bytes without tensors", raw_file("{}", 1), "but the file holds 1"},
    };
}

TEST(SafetensorsParse, RefusesHostileFiles) {
    for (const Hostile& hostile : hostile_files()) {
        const std::string message = parse_error(hostile.file);
        EXPECT_NE(message.find(hostile.message), std::string::npos)
            << hostile.what << ": " << message.substr(0, 500);
        EXPECT_EQ(message.substr(0, 3), "F: ") << hostile.what;
        EXPECT_LT(message.size(), 1000u) << hostile.what;
        EXPECT_EQ(printable(message, 1000), message) << hostile.what;
    }
}

TEST(SafetensorsParse, RefusesEveryTruncation) {
    const std::string file = two_entries("[0,4]", "[4,8]", 8);
    ASSERT_EQ(parse_error(file), "");
    for (std::size_t size = 0; size < file.size(); ++size) {
        EXPECT_NE(parse_error(file.substr(0, size)), "") << size;
    }
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
    const TemporaryDirectory directory;
    const auto open_error = [](const std::string& path) {
        return error_of([&] { const SafetensorsFile file(path); });
    };
    EXPECT_EQ(open_error(directory.file("absent")),
              directory.file("absent") + ": cannot open the file: No such file or directory");
    EXPECT_EQ(open_error(directory.path().string()),
              directory.path().string() + ": is not a regular file");
    const std::string fifo = directory.file("fifo");
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_EQ(open_error(fifo), fifo + ": is not a regular file");
    EXPECT_EQ(open_error("/dev/zero"), "/dev/zero: is not a regular file");
    const std::string empty = directory.file("empty");
    write_text(empty, "");
    EXPECT_NE(open_error(empty).find(empty + ": has 0 bytes"), std::string::npos);
    EXPECT_NE(open_error(directory.file(std::string("a\nb"))).find("a\\x0ab"), std::string::npos);
}

TEST(SafetensorsWriter, RefusesBadTensorsAndWritesNothing) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("bad");
    const Bytes four = to_bytes("0123");
    const auto write_error = [&](const std::vector<TensorView>& tensors,
                                 const Metadata& metadata = {}) {
        return error_of([&] { write_safetensors(path, tensors, metadata); });
    };
    const std::vector<std::pair<std::string, std::string>> cases = {
        {write_error({view("a", Dtype::kF32, {2}, four)}),
         "tensor 'a': F32 [2] takes 8 bytes, but 4 are given"},
        {write_error({view("a", Dtype::kF32, {1}, four), view("a", Dtype::kU8, {4}, four)}),
         "tensor 'a': duplicate name"},
        {write_error({view("a", Dtype::kU8, {-4}, four)}), "shape [-4] has a negative extent"},
        {write_error({view("a", Dtype::kU8, {1LL << 62, 4}, four)}), "overflows"},
        {write_error({view("a", Dtype::kU8, std::vector<std::int64_t>(33, 1), four)}),
         "has 33 extents; allowed are at most 32"},
        {write_error({view("a", Dtype::kF4, {3}, four)}), "no whole number of bytes"},
        {write_error({view("__metadata__", Dtype::kU8, {4}, four)}), "this name is not allowed"},
        {write_error({view(std::string("a\0b", 3), Dtype::kU8, {4}, four)}),
         "this name is not allowed"},
        {write_error({view("\xFF", Dtype::kU8, {4}, four)}), "'\\xff' is not UTF-8"},
        {write_error({}, {{"a", "\xFF"}}), "'\\xff' is not UTF-8"},
        {write_error({}, {{"a", std::string(1, '\0')}}), "'a' holds a NUL character"},
        {error_of([&] { write_safetensors(directory.file("no/file"), {}); }),
         "No such file or directory"},
        {error_of([&] { write_safetensors(directory.path().string(), {}); }),
         "exists and is not a regular file"},
        {error_of([&] { write_safetensors("/dev/null", {}); }), "exists and is not a regular file"},
    };
    for (const auto& [message, part] : cases) {
        EXPECT_NE(message.find(part), std::string::npos) << part << " / " << message;
    }
    EXPECT_EQ(entries_in(directory.path()), 0u);
}

TEST(SafetensorsWriter, KeepsPermissionsAndLinks) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("real");
    const std::string link = directory.file("link");
    const auto mode_of = [](const std::string& file) {
        struct stat info {};
        EXPECT_EQ(::stat(file.c_str(), &info), 0);
        return info.st_mode & 0777;
    };
    const mode_t old_mask = ::umask(027);
    write_safetensors(path, {});
    ::umask(old_mask);
    EXPECT_EQ(mode_of(path), 0640u);

    ASSERT_EQ(::chmod(path.c_str(), 0604), 0);
    fs::create_symlink("real", link);
    const Bytes four = to_bytes("0123");
    const std::vector<TensorView> tensors = {view("a", Dtype::kU8, {4}, four)};
    write_safetensors(link, tensors);
    EXPECT_EQ(mode_of(path), 0604u);
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(SafetensorsFile(path).tensors().size(), 1u);
    EXPECT_EQ(entries_in(directory.path()), 2u);
}

TEST(SafetensorsWriter, TakesLongNamesAndNamesWithoutADirectory) {
    const TemporaryDirectory directory;
    const std::string longest = directory.file(std::string(255, 'n'));
    write_safetensors(longest, {});
    EXPECT_TRUE(fs::exists(longest));
    const fs::path before = fs::current_path();
    fs::current_path(directory.path());
    write_safetensors("plain", {});
    fs::current_path(before);
    EXPECT_TRUE(fs::exists(directory.file("plain")));
}

// A write that fails half-way (here: at the process's limit on file sizes) leaves what was there.
TEST(SafetensorsWriter, FailureLeavesTheOldFile) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("kept");
    write_safetensors(path, {}, {{"which", "old"}});
    const std::string old = read_text(path);

    struct rlimit limit {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = limit;
    small.rlim_cur = 100'000;
    auto* old_handler = ::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Bytes large(1'000'000);
    const std::vector<TensorView> tensors = {view("a", Dtype::kU8, {1'000'000}, large)};
    const std::string message = error_of([&] { write_safetensors(path, tensors); });
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, old_handler);

    EXPECT_EQ(message, path + ": cannot write the file: File too large");
    EXPECT_EQ(read_text(path), old);
    EXPECT_EQ(entries_in(directory.path()), 1u);
}

// --- Properties -------------------------------------------------------------------------------

// Tensors with the bytes they point to.
struct Owned {
    std::vector<TensorView> tensors;
    std::vector<Bytes> storage;
    Metadata metadata;
};

// A name of any characters but NUL, as UTF-8.
std::string random_name() {
    const auto points = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(
        rc::gen::inRange<std::uint32_t>(1, 0x80), rc::gen::inRange<std::uint32_t>(0x80, 0xD800),
        rc::gen::inRange<std::uint32_t>(0x10000, 0x110000)));
    std::string out;
    const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    for (const std::uint32_t p : points) {
        if (p < 0x80) {
            add(p);
        } else if (p < 0x800) {
            add(0xC0 | p >> 6);
            add(0x80 | (p & 0x3F));
        } else if (p < 0x10000) {
            add(0xE0 | p >> 12);
            add(0x80 | (p >> 6 & 0x3F));
            add(0x80 | (p & 0x3F));
        } else {
            add(0xF0 | p >> 18);
            add(0x80 | (p >> 12 & 0x3F));
            add(0x80 | (p >> 6 & 0x3F));
            add(0x80 | (p & 0x3F));
        }
    }
    return out;
}

Owned random_tensors() {
    Owned out;
    const int count = *rc::gen::inRange(0, 6);
    std::map<std::string, bool> names;
    for (int i = 0; i < count; ++i) {
        std::string name = random_name();
        if (name == "__metadata__" || !names.emplace(name, true).second) {
            continue;
        }
        const auto dtype = static_cast<Dtype>(*rc::gen::inRange(0, 22));
        auto shape = *rc::gen::container<std::vector<std::int64_t>>(
            static_cast<std::size_t>(*rc::gen::inRange(0, 4)),
            rc::gen::inRange<std::int64_t>(0, 6));
        if (dtype_bits(dtype) < 8) {
            shape.push_back(4);
        }
        TensorView tensor = view(std::move(name), dtype, std::move(shape), {});
        const std::int64_t bytes = tensor.elements() * dtype_bits(dtype) / 8;
        out.storage.push_back(*rc::gen::container<Bytes>(
            static_cast<std::size_t>(bytes),
            rc::gen::map(rc::gen::arbitrary<std::uint8_t>(),
                         [](std::uint8_t value) { return static_cast<std::byte>(value); })));
        tensor.bytes = out.storage.back();
        out.tensors.push_back(std::move(tensor));
    }
    const int pairs = *rc::gen::inRange(0, 4);
    for (int i = 0; i < pairs; ++i) {
        std::string key = random_name();
        out.metadata[std::move(key)] = random_name();
    }
    return out;
}

RC_GTEST_PROP(SafetensorsProperty, FilesRoundTrip, ()) {
    static const TemporaryDirectory directory;
    const Owned owned = random_tensors();
    const std::string path = directory.file("file");
    write_safetensors(path, owned.tensors, owned.metadata);

    const SafetensorsFile file(path);
    RC_ASSERT(file.metadata() == owned.metadata);
    RC_ASSERT(file.tensors().size() == owned.tensors.size());
    for (const TensorView& tensor : owned.tensors) {
        const TensorView& read = file.at(tensor.name);
        RC_ASSERT(read.dtype == tensor.dtype);
        RC_ASSERT(read.shape == tensor.shape);
        RC_ASSERT(std::ranges::equal(read.bytes, tensor.bytes));
        RC_ASSERT(read.element_aligned());
    }
}

// Whatever the bytes are, they are refused, or every tensor lies inside them.
void check_any_bytes(const Bytes& bytes) {
    try {
        const TensorSet set = TensorSet::parse(bytes, "F");
        for (const TensorView& tensor : set.tensors()) {
            RC_ASSERT(tensor.bytes.data() >= bytes.data());
            RC_ASSERT(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
            RC_ASSERT(&set.at(tensor.name) == &tensor);
            RC_ASSERT(tensor.elements() * dtype_bits(tensor.dtype) ==
                      static_cast<std::int64_t>(tensor.bytes.size()) * 8);
        }
    } catch (const Error& error) {
        RC_ASSERT(std::string_view(error.what()).substr(0, 3) == "F: ");
    }
}

RC_GTEST_PROP(SafetensorsProperty, MutationsNeverCrash, ()) {
    static const TemporaryDirectory directory;
    const Owned owned = random_tensors();
    const std::string path = directory.file("file");
    write_safetensors(path, owned.tensors, owned.metadata);
    const std::string text = read_text(path);
    const Bytes valid = to_bytes(text);
    std::uint64_t header = 0;
    std::memcpy(&header, valid.data(), 8);

    for (int round = 0; round < 20; ++round) {
        Bytes bytes = valid;
        const int changes = *rc::gen::inRange(1, 4);
        for (int i = 0; i < changes && !bytes.empty(); ++i) {
            // Mostly in the length and the header, where there is something to break.
            const auto end = *rc::gen::element(bytes.size(), std::size_t{8},
                                               static_cast<std::size_t>(header) + 8);
            const auto at = *rc::gen::inRange<std::size_t>(0, std::min(end, bytes.size()));
            const auto value = static_cast<std::byte>(*rc::gen::oneOf(
                rc::gen::inRange(0, 256),
                rc::gen::map(
                    rc::gen::element('0', '9', '-', '"', '[', ']', '{', '}', ',', ':', '\\'),
                    [](char c) { return static_cast<int>(c); })));
            switch (*rc::gen::inRange(0, 4)) {
                case 0:
                    bytes.resize(at);
                    break;
                case 1:
                    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), value);
                    break;
                case 2:
                    bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
                    break;
                default:
                    bytes[at] = value;
            }
        }
        bytes.shrink_to_fit();  // so that a read past the end is one past the allocation
        check_any_bytes(bytes);
    }
}

}  // namespace
}  // namespace quatt::tools
